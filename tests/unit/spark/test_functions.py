"""The functions that conditions may not call are documented, each with its reason."""

import re
from pathlib import Path

from tidegate.spark.functions import ALLOWED, REFUSED, Refusal, why_not

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "conditions-on-records.md"


def test_the_page_names_every_refused_function_with_the_reason() -> None:
    rows = re.findall(r"^\| (it .+|no .+) \| (`.+`) \|$", PAGE.read_text(), re.MULTILINE)
    documented = {name: why for why, names in rows for name in re.findall(r"`([^`]+)`", names)}

    assert documented == {name: str(why) for name, why in REFUSED.items()}
    assert [why for why, _ in rows] == list(Refusal)


def test_a_name_counts_in_any_case_and_an_unknown_one_is_not_allowed() -> None:
    assert why_not("get_json_object") is None
    assert why_not("GET_JSON_OBJECT") is None
    assert why_not("Reflect") == Refusal.JAVA
    assert why_not("of_a_later_spark") == "nobody has judged yet whether it reads more than the record"
    assert not ALLOWED & REFUSED.keys()

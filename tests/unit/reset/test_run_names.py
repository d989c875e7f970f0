"""The names a run goes by."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.reset.runs.request import launch_name, launch_number, run_name

RUN_IDS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@settings(max_examples=50, deadline=None)
@given(RUN_IDS, st.integers(1, 9999))
def test_names_are_dns_labels_and_numbers_are_found_again(run_id: str, number: int) -> None:
    name = run_name(run_id, "uid")
    launch = launch_name(name, number)

    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", launch)
    assert len(launch) <= 63
    assert launch_number(launch) == number


def test_names_can_be_read_and_told_apart() -> None:
    assert re.fullmatch(r"payments-replay-1-[0-9a-f]{8}", run_name("payments-replay-1", "uid"))
    assert run_name("a", "uid") != run_name("a", "another uid")
    assert launch_number(None) == 0

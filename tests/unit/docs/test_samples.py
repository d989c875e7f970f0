"""What pages show of a command's output is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
GOLDEN: Final = ROOT / "tests" / "unit" / "cli" / "golden"
"""What ``tests/unit/cli`` holds the command line to."""


def test_the_readmes_plan_is_what_tidegate_plan_prints() -> None:
    readme = (ROOT / "README.md").read_text()
    [shown] = re.findall(r"<!-- begin sample of a plan -->\n```\n(.*?)```\n<!-- end", readme, re.S)
    printed = iter((GOLDEN / "plan.txt").read_text().splitlines())

    left_out = [line for line in shown.splitlines() if line and line not in printed]

    assert not left_out, "in this order"

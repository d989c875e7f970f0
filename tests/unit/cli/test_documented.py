"""The reference of the command line says what there is."""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.cli.acls import acls_parser
from tidegate.cli.approving import approve_parser
from tidegate.cli.asking import reset_parser
from tidegate.cli.auditing import audit_parser
from tidegate.cli.cluster_audit import cluster_audit_parser
from tidegate.cli.env import env_parser
from tidegate.cli.options import groups_parser
from tidegate.cli.parity import parity_parser
from tidegate.cli.planning import plan_parser
from tidegate.cli.topics import topics_parser

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
NOT_OFFERED = {"--delete", "--delete-offsets", "--validate-regex"}


def test_every_option_is_documented_and_no_other() -> None:
    parsers = (
        *(groups_parser, reset_parser, plan_parser, approve_parser),
        *(parity_parser, env_parser, topics_parser, acls_parser, audit_parser),
        cluster_audit_parser,
    )
    actions = [action for parser in parsers for action in parser()._actions]
    real = {text for action in actions for text in action.option_strings if text.startswith("--")} - {"--help"}

    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - NOT_OFFERED == real

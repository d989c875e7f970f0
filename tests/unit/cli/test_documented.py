"""The reference of the command line says what there is."""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.cli.commands import COMMANDS
from tidegate.cli.options import groups_parser

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
NOT_OFFERED = {"--delete", "--delete-offsets", "--validate-regex"}


def test_every_option_is_documented_and_no_other() -> None:
    parsers = [groups_parser(), *(command.parser() for command in COMMANDS)]
    actions = [action for parser in parsers for action in parser._actions]
    real = {text for action in actions for text in action.option_strings if text.startswith("--")} - {"--help"}

    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - NOT_OFFERED == real


def test_every_command_has_a_section() -> None:
    for command in COMMANDS:
        assert re.search(rf"^## .*`tidegate {' '.join(command.words)}`", PAGE, re.MULTILINE), command.words

"""How a command ends that does not succeed."""

from __future__ import annotations

import argparse
from typing import NoReturn


class UsageError(Exception):
    """The command line asks for something that is not offered. Printed with the usage; exit code 1."""


class Parser(argparse.ArgumentParser):
    """Leaves it to the command how a mistake is told."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def add_output(self, *forms: str, says: str = "text for people (default), or json for programs") -> None:
        """``--output``: one of these forms, by default the first of them. ``says``: what they are."""
        forms = forms or ("text", "json")
        self.add_argument("--output", "-o", choices=forms, default=forms[0], help=says)


class CommandFailed(Exception):
    """What was asked for did not work out; the message says why."""


def in_the_tools_words(why: object) -> str:
    """How ``kafka-consumer-groups`` introduces what went wrong."""
    return f"Executing consumer group command failed due to {why}"

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

    def add_forms(
        self,
        default: str = "text",
        other: str = "json",
        says: str = "text for people (default), or json for programs",
    ) -> None:
        """``--output``: one of two forms. ``says``: what they are."""
        self.add_argument("--output", "-o", choices=(default, other), default=default, help=says)


class CommandFailed(Exception):
    """What was asked for did not work out; the message says why."""


def in_the_tools_words(why: object) -> str:
    """How ``kafka-consumer-groups`` introduces what went wrong."""
    return f"Executing consumer group command failed due to {why}"

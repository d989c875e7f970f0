"""How a command ends that does not succeed."""

from __future__ import annotations


class UsageError(Exception):
    """The command line asks for something that is not offered. Printed with the usage; exit code 1."""


class CommandFailed(Exception):
    """What was asked for did not work out; the message says why."""


def in_the_tools_words(why: object) -> str:
    """How ``kafka-consumer-groups`` introduces what went wrong."""
    return f"Executing consumer group command failed due to {why}"

"""The commands that there are. What one needs is imported when it is called: that may take longer than the command."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from tidegate.cli.screen import Screen

Run = Callable[[Sequence[str], Screen], int]
MakeParser = Callable[[], ArgumentParser]


@dataclass(frozen=True, slots=True)
class Command:
    """``words``: by which it is called. ``module`` has ``<name>_parser`` and ``run_<name>``."""

    words: tuple[str, ...]
    arguments: str
    about: str
    module: str
    name: str

    def load(self) -> tuple[MakeParser, Run]:
        module = import_module(f"tidegate.cli.{self.module}")
        return getattr(module, f"{self.name}_parser"), getattr(module, f"run_{self.name}")

    def parser(self) -> ArgumentParser:
        """A new one, which says what the options are."""
        made: ArgumentParser = getattr(import_module(f"tidegate.cli.{self.module}"), f"{self.name}_parser")()
        return made


def _command(called: str, arguments: str, about: str, module: str, name: str = "") -> Command:
    words = tuple(called.split())
    return Command(words, arguments, about, module, name or words[-1])


COMMANDS: Final = (
    _command(
        "why", "GROUP OPTIONS", "say why a group reads or does not read: owners, lag, holds, what runs or waits", "why"
    ),
    _command(
        "status", "OPTIONS", "show connections, runs, pauses and what waits for a person, on one screen", "overview"
    ),
    _command(
        "ui",
        "OPTIONS",
        "show groups, resets and pauses live in a browser on this machine, with approve and undo",
        "ui.command",
    ),
    _command(
        "reset", "GROUP OPTIONS", "reset consumer groups by creating an OffsetReset in a Kubernetes cluster", "asking"
    ),
    _command("plan", "NAME", "show what an OffsetReset would read again and skip", "planning"),
    _command("approve", "NAME", "approve the plan of an OffsetReset, so that it is applied", "approving"),
    _command("watch", "NAME", "show each step of an OffsetReset or a ConsumerGroupPause, until it is done", "watching"),
    _command("cancel", "NAME", "delete an OffsetReset that has not ended, and roll it back", "undoing"),
    _command("undo", "NAME", "undo an OffsetReset by creating another one", "undoing"),
    _command(
        "pause", "GROUP OPTIONS", "pause consumer groups by creating a ConsumerGroupPause for each", "pause_resources"
    ),
    _command("resume", "NAME", "resume what a ConsumerGroupPause pauses", "pause_resources"),
    _command(
        "freeze", "CONNECTION OPTIONS", "freeze a KafkaConnection, so that nothing new begins through it", "freezing"
    ),
    _command("thaw", "CONNECTION", "end a freeze, so that what waits because of it can begin", "freezing"),
    _command("bundle", "OPTIONS", "write a support archive, without credentials or records", "bundling"),
    _command(
        "backup list", "OPTIONS", "list the backups of groups' offsets that OffsetBackups have taken", "backups", "list"
    ),
    _command(
        "backup take", "NAME", "have an OffsetBackup take a backup now, in addition to its schedule", "backups", "take"
    ),
    _command("backup show", "NAME OPTIONS", "show one backup, or the offsets of a group in it", "backups", "show"),
    _command(
        "backup restore",
        "NAME GROUP",
        "restore a group from a backup by creating an OffsetReset",
        "restoring",
        "restore",
    ),
    _command("mirror failover", "NAME", "end the copying of an OffsetMirror for good", "mirroring"),
    _command("mirror failback", "NAME OPTIONS", "after a failover, copy back what was written since then", "mirroring"),
    _command("parity", "OPTIONS", "check whether offsets of another cluster mean the same records here", "parity"),
    _command("topics", "OPTIONS", "show between which times the partitions of topics were created", "topics"),
    # Before ``audit``, with which it begins.
    _command(
        "audit log", "OPTIONS", "print who changed which committed offsets, as lines of JSON", "auditing", "audit"
    ),
    _command(
        "audit",
        "OPTIONS",
        "report what is about to go wrong with the groups of a cluster; it only looks",
        "cluster_audit",
        "cluster_audit",
    ),
    _command("env", "POLICY", "print the environment that an OffsetResetPolicy gives to its consumers", "env"),
    _command("acls", "CONNECTION", "print the permissions that a KafkaConnection's principals need in Kafka", "acls"),
    _command(
        "completion", "SHELL", "print the script that completes commands and options in bash, zsh or fish", "completing"
    ),
)
"""All but ``groups``, whose outputs and exit codes are those of Kafka's tool."""

_WIDTH: Final = 35


def usage(commands: Sequence[Command] | None = None) -> str:
    """Of these commands; ``None``: of all."""
    by_kafka = ("groups OPTIONS", "list, describe, pause, resume, release and reset consumer groups, with Kafka alone")
    lines = [(" ".join((*c.words, c.arguments)), c.about) for c in (COMMANDS if commands is None else commands)]
    if commands is None:
        lines = [by_kafka, *lines, ("COMMAND --help", "show the options of a command"), ("--version", "")]
    told = [
        f"{'usage:' if not n else '      '} {f'tidegate {called}':<{_WIDTH}} {about}"
        for n, (called, about) in enumerate(lines)
    ]
    return "".join(f"{line.rstrip()}\n" for line in told)

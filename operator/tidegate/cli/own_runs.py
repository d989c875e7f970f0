"""What a reset by ``tidegate groups`` keeps on this machine: its run's document, and a lock for each group."""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.cli.errors import CommandFailed
from tidegate.clock import Clock
from tidegate.kafka.connection import Connection
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.progress import Progress


class ToldStore(DirectoryRunStore):
    """Tells once what the run waits for."""

    def __init__(self, folder: Path, name: str, clock: Clock, tell: Callable[[str], None]) -> None:
        super().__init__(folder, name, clock=clock)
        self._tell = tell
        self._told = ""

    def append(self, progress: Progress, *, attempt: int) -> None:
        super().append(progress, attempt=attempt)
        if progress.waits_for not in ("", self._told):
            self._told = progress.waits_for
            self._tell(self._told)


def user() -> str:
    """Who runs this, as the operating system says."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def run_prefix(connection: Connection, group: str) -> str:
    """Of the names of a group's runs on one cluster, as far as its bootstrap servers tell clusters apart."""
    return "g" + hashlib.sha256(f"{connection.bootstrap_servers}\n{group}".encode()).hexdigest()[:16]


@contextmanager
def alone(folder: Path, prefix: str, group: str) -> Iterator[None]:
    """Nobody else on this machine resets the group meanwhile. Raises ``CommandFailed`` where somebody does."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / f"{prefix}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CommandFailed(f"cannot write to {folder}, where runs are kept: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailed(
                f"another command is resetting group '{group}' at the moment: try again when it has ended"
            ) from None
        except OSError as error:
            raise CommandFailed(f"cannot lock a file in {folder}: {error.strerror}") from error
        yield
    finally:
        os.close(lock)

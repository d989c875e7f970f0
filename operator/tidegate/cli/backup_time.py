"""``--at``: which backup is meant, as ``spec.to.backup.at`` of an OffsetReset says it."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Final

from tidegate.cli.errors import UsageError

AT_HELP: Final = "the newest backup whose offsets had all been read by this time, such as 2026-11-20T14:00:00Z"


def at_of(options: argparse.Namespace) -> datetime | None:
    """Raises ``UsageError``."""
    if options.at is None:
        return None
    try:
        at = datetime.fromisoformat(options.at)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise UsageError(f"--at {options.at}: must be a time with a zone, such as 2026-11-20T14:00:00Z")
    return at

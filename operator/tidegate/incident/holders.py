"""Whose a hold is, by its holder's name (docs/how-to/release-held-partitions.md). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidegate.control.records import CLI_HOLDER
from tidegate.pause.holds import is_a_pause
from tidegate.reset.applying.gates import BY_DISCOVERY, BY_HAND, run_of


class HolderKind(StrEnum):
    """What kind of holder sets holds of that name. Anybody who may write the control topic may use any name."""

    PAUSE = "Pause"
    RESET = "Reset"
    DISCOVERY = "Discovery"
    RESET_BY_HAND = "ResetByHand"
    PAUSE_BY_HAND = "PauseByHand"
    PROGRAM = "Program"


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder, by its name. ``uid``: of the resource; ``run``: the OffsetReset's name, or the command's run id."""

    name: str
    kind: HolderKind
    uid: str = ""
    run: str = ""


_PARTS_OF_A_PAUSE: Final = 3


def holder_named(name: str) -> Holder:
    """The holder with this name. A name that begins as the operator's do and goes on otherwise is a program's."""
    if name == CLI_HOLDER:
        return Holder(name, HolderKind.PAUSE_BY_HAND)
    if is_a_pause(name):
        parts = name.split("/")
        if len(parts) == _PARTS_OF_A_PAUSE and all(parts):
            return Holder(name, HolderKind.PAUSE, uid=parts[2])
        return Holder(name, HolderKind.PROGRAM)
    run = run_of(name)
    if run is None:
        return Holder(name, HolderKind.PROGRAM)
    first, _, rest = run.partition("/")
    of = rest.split("/")[0]
    if not first or not of:
        return Holder(name, HolderKind.PROGRAM)
    if first == BY_HAND:
        return Holder(name, HolderKind.RESET_BY_HAND, run=of)
    if first == BY_DISCOVERY:
        return Holder(name, HolderKind.DISCOVERY, uid=of)
    return Holder(name, HolderKind.RESET, uid=first, run=of)

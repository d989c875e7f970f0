"""``--release-all``: let go of what is held, whoever holds it, with nothing but Kafka."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidegate.cli.options import Options
from tidegate.cli.screen import Screen
from tidegate.cli.tables import holds_table
from tidegate.control.gates import Held, Limited
from tidegate.control.ports import ControlTopics
from tidegate.control.records import HoldKey, LimitKey
from tidegate.pause.holds import is_a_pause
from tidegate.printable import visible
from tidegate.reset.applying.gates import run_of

PAUSES_COME_BACK: Final = (
    "If a ConsumerGroupPause still exists, a running operator writes its holds again: delete or suspend "
    "the pause instead."
)
RESETS_MAY_RUN: Final = (
    "If one of these resets is still in progress, releasing its holds lets owners continue from their old "
    "positions and overwrite what the reset commits: make sure that none is in progress."
)

REPLAYS_MAY_RUN: Final = (
    "Once the limit of a replay is released, its group reads on past the end of the replay: from where it "
    "is now, not from where it was before. If a replay is still in progress, a running operator writes "
    "its limits again: delete its OffsetReset instead, which returns the group to where it was before."
)


def release_all(options: Options, groups: Collection[str], control: ControlTopics, screen: Screen) -> int:
    """Lists what is held of the groups, and with ``--execute`` releases exactly that. 1: some of it is held again.

    Raises ``KafkaFailure``.
    """
    held = {key: of for key, of in _all(control).items() if key.group in groups and _meant(options, key)}
    if not held:
        by = f" by {', '.join(map(visible, options.holders))}" if options.holders else ""
        of = "" if options.all_groups else f" in {', '.join(map(visible, sorted(groups)))}"
        screen.note(f"Nothing is held{of}{by}.")
        return 0
    screen.show(holds_table(held))
    if any(is_a_pause(key.holder) for key in held):
        screen.note(PAUSES_COME_BACK)
    if any(run_of(key.holder) is not None for key in held):
        screen.note(RESETS_MAY_RUN)
    if any(isinstance(key, LimitKey) for key in held):
        screen.note(REPLAYS_MAY_RUN)
    if not options.execute:
        screen.note(f"{len(held)} hold(s) would be released. None was, because the --execute option is missing.")
        return 0
    # Limits first: whoever is let go of goes on.
    control.release(sorted(held, key=lambda key: isinstance(key, HoldKey)))
    again = sorted(held.keys() & _all(control).keys(), key=_place)
    screen.note(f"{len(held) - len(again)} hold(s) released.")
    for key in again:
        screen.error(visible(f"{key.holder} holds {key.topic_partition} of consumer group '{key.group}' again"))
    return 1 if again else 0


def groups_held(control: ControlTopics) -> tuple[str, ...]:
    """The groups of which anything is held or limited, by anybody, sorted. Raises ``KafkaFailure``."""
    return tuple(sorted({key.group for key in _all(control)}))


def _all(control: ControlTopics) -> dict[HoldKey | LimitKey, Held | Limited]:
    """Holds and limits, by where they are."""
    gates = control.read()
    there: dict[HoldKey | LimitKey, Held | Limited] = dict(gates.holds) | dict(gates.limits)
    return {key: there[key] for key in sorted(there, key=_place)}


def _place(key: HoldKey | LimitKey) -> tuple[str, str, int, str, bool]:
    return key.group, key.topic, key.partition, key.holder, isinstance(key, LimitKey)


def _meant(options: Options, key: HoldKey | LimitKey) -> bool:
    """Whether the hold is one of those that the command line asks for."""
    of_topic = not options.topics or any(
        key.topic == t.topic and (t.partitions is None or key.partition in t.partitions) for t in options.topics
    )
    # As the table shows it, so that it can be copied from there.
    named = {key.holder, visible(key.holder)}
    return of_topic and (not options.holders or not named.isdisjoint(options.holders))

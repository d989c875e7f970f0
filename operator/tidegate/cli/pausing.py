"""``--pause``, ``--resume`` and ``--paused-partitions``."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Final

from tidegate.admin.errors import PauseFailure
from tidegate.admin.service import Pauses
from tidegate.cli.errors import CommandFailed, in_the_tools_words
from tidegate.cli.options import Options
from tidegate.cli.resetting import named_partitions
from tidegate.cli.screen import Screen
from tidegate.cli.tables import paused_table, status_table
from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.control.standing import PartitionStanding
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import Group, GroupState, TopicPartition
from tidegate.printable import visible

_SETTLE_S: Final = 30.0
_LOOK_S: Final = 0.2

Row = tuple[str, TopicPartition, str]


def pause(options: Options, groups: Collection[str], kafka: Kafka, pauses: Pauses, clock: Clock, screen: Screen) -> int:
    """1: at least one partition is not paused."""
    rows: list[Row] = []
    failed = False
    for group_id in sorted(groups):
        try:
            group = _settled(kafka, group_id, clock)
            failed |= not _pause_group(options, group, kafka, pauses, screen, rows)
        except (CommandFailed, PauseFailure) as error:
            failed = True
            screen.error(str(error))
        except KafkaFailure as error:
            failed = True
            screen.error(in_the_tools_words(error))
    if rows:
        screen.show(status_table(rows))
    return 1 if failed else 0


def _pause_group(options: Options, group: Group, kafka: Kafka, pauses: Pauses, screen: Screen, rows: list[Row]) -> bool:
    group_id = group.group_id
    partitions = _partitions(options, group, kafka)
    if not partitions:
        raise CommandFailed(
            f"Consumer group '{group_id}' has no offsets and no partition assigned: name the topics with --topic"
        )
    if group.state is GroupState.DEAD:
        screen.note(
            f"Consumer group '{visible(group_id)}' does not exist. A member that joins it and runs the "
            "agent will find these partitions paused."
        )
    outcomes: dict[TopicPartition, PartitionStanding | Exception] = {}
    pauses.pause(
        group_id,
        partitions,
        outcomes.__setitem__,
        reason=options.reason,
        drain_timeout=options.drain_timeout,
        timeout=None if options.timeout_ms is None else timedelta(milliseconds=options.timeout_ms),
    )
    rows += [
        (group_id, p, "Paused" if isinstance(outcome, PartitionStanding) else f"Error: {outcome}")
        for p, outcome in sorted(outcomes.items())
    ]
    return all(isinstance(outcome, PartitionStanding) for outcome in outcomes.values())


def resume(options: Options, groups: Collection[str], kafka: Kafka, pauses: Pauses, screen: Screen) -> int:
    """Release the holds that were set by hand. 1: those of at least one group were not."""
    rows: list[Row] = []
    failed = False
    for group_id in sorted(groups):
        try:
            partitions = _held(options, group_id, kafka, pauses)
            outcomes = pauses.resume(group_id, partitions)
        except CommandFailed as error:
            failed = True
            screen.error(str(error))
            continue
        except KafkaFailure as error:
            failed = True
            screen.error(in_the_tools_words(error))
            continue
        for partition, resumed in sorted(outcomes.items()):
            status = "Resumed" if resumed.was_held else "Was not paused by hand"
            if resumed.still_held_by:
                status += f", stays paused by {', '.join(resumed.still_held_by)}"
            rows.append((group_id, partition, status))
        if not partitions:
            screen.note(f"No partition of consumer group '{visible(group_id)}' is paused by hand.")
    if rows:
        screen.show(status_table(rows))
    return 1 if failed else 0


def _held(options: Options, group_id: str, kafka: Kafka, pauses: Pauses) -> list[TopicPartition]:
    """``--all-topics``: all that is held by hand. A topic as a whole: also partitions of it that are gone."""
    by_hand = pauses.held(group_id, by_us=True)
    if options.all_topics:
        return sorted(by_hand)
    topics = kafka.topics()
    named = {p for a in options.topics for p in a.named()}
    whole = {a.topic for a in options.topics if a.partitions is None}
    known = {p for p in by_hand if p.topic in whole}
    known |= {p for topic in whole if topic in topics for p in topics[topic].all_partitions()}
    unknown = sorted(topic for topic in whole if topic not in topics and not any(p.topic == topic for p in by_hand))
    if unknown:
        raise CommandFailed(f"no such topic, or no permission to describe it: {', '.join(unknown)}")
    return sorted(named | known)


def list_paused(groups: Collection[str], pauses: Pauses, screen: Screen) -> int:
    """Raises ``KafkaFailure``."""
    for group_id in sorted(groups):
        paused = pauses.paused(group_id)
        if paused:
            screen.show(paused_table(group_id, paused.values()))
        else:
            screen.note(f"No partition of consumer group '{visible(group_id)}' is paused.")
    return 0


def _partitions(options: Options, group: Group, kafka: Kafka) -> list[TopicPartition]:
    """``--all-topics``: all partitions of the topics that it has offsets for or is assigned."""
    topics = kafka.topics()
    if not options.all_topics:
        return named_partitions(options.topics, topics)
    read = {p.topic for p in group.assigned} | {p.topic for p in kafka.committed(group.group_id)}
    return [p for name in sorted(read) if name in topics for p in topics[name].all_partitions()]


def _settled(kafka: Kafka, group_id: str, clock: Clock) -> Group:
    """The group once it is not rebalancing, for a while: until then nobody says what it reads."""
    deadline = clock.monotonic() + _SETTLE_S
    while True:
        group = kafka.groups([group_id])[group_id]
        if not group.state.is_rebalancing or clock.monotonic() > deadline:
            return group
        clock.sleep(_LOOK_S)

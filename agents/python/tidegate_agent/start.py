"""Where a partition begins for which the group has committed nothing (KIP-1327). Pure.

The rule of the KIP's draft, ``auto.offset.reset.latest.max.age``: a partition that is no older begins at its first
record although the consumer begins at the last one otherwise. Kafka's accepted form,
``auto.offset.reset.new.partitions``, says for any consumer where new partitions begin; new are those that discovery
found later than at its first look. What a record leaves open about an age is taken for its younger bound, so that in
doubt a partition counts as new.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

from tidegate_agent.ages import INITIAL, NEVER, Clock, Discovered
from tidegate_agent.gates import Known, Partition

LATEST_MAX_AGE: Final = "auto.offset.reset.latest.max.age"
NEW_PARTITIONS: Final = "auto.offset.reset.new.partitions"

PATIENCE_S: Final = 6.0
"""How long a record that would decide is waited for; the clock's come every 5 s."""

ALIVE_S: Final = 15.0
"""Whoever wrote a clock record not longer ago than this discovers partitions."""

_LARGEST_MS: Final = 2**63 - 1
_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What Java's ``String.trim`` takes off."""


class RuleError(ValueError):
    """An option has a value that means nothing; the message says which values it may have."""


class Start(enum.Enum):
    """Where to begin: at the first record there is, or after the last one."""

    EARLIEST = "earliest"
    LATEST = "latest"


_RESETS: Final = {
    "earliest": Start.EARLIEST,
    "smallest": Start.EARLIEST,
    "beginning": Start.EARLIEST,
    "latest": Start.LATEST,
    "largest": Start.LATEST,
    "end": Start.LATEST,
}


@dataclass(frozen=True)
class Options:
    """What is said about new partitions; ``None``: nothing. ``latest_max_age_ms`` −1: off."""

    latest_max_age_ms: int | None = None
    new_partitions: Start | None = None

    def over(self, other: Options) -> Options:
        """This, and where it says nothing, the other."""
        return Options(
            other.latest_max_age_ms if self.latest_max_age_ms is None else self.latest_max_age_ms,
            other.new_partitions if self.new_partitions is None else self.new_partitions,
        )


@dataclass(frozen=True)
class Rule:
    """New partitions without a committed offset begin at ``start``. ``max_age_ms``: which are new; ``None``: all that
    came after the first discovery."""

    start: Start
    max_age_ms: int | None = None


@dataclass(frozen=True)
class Verdict:
    """``start`` ``None``: where the client itself begins. ``why``: for people. ``is_known``: whether it is new."""

    start: Start | None
    why: str
    is_known: bool = True


def reset_policy(value: object) -> Start | None:
    """What a client's ``auto.offset.reset`` says; ``None``: neither, it fails or does something of its own."""
    return _RESETS.get(str(value).strip().lower())


def parse_max_age(value: object) -> int:
    """Milliseconds, or −1 for off. Raises ``RuleError``."""
    # As Kafka takes a long: Python would also take 1_000, and strips other characters than Java.
    text = str(value).strip(_BLANKS) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    age = int(text) if re.fullmatch("[+-]?[0-9]{1,19}", text) else -2
    if not -1 <= age <= _LARGEST_MS:
        raise RuleError(f"must be a whole number of milliseconds, or -1 for off, not {value!r}")
    return age


def parse_new_partitions(value: object) -> Start:
    """``earliest`` or ``latest``. Raises ``RuleError``, also for what Kafka knows beside these two."""
    try:
        return Start(str(value).strip().lower())
    except ValueError:
        raise RuleError(f"must be earliest or latest, not {value!r}") from None


def rule_for(options: Options, reset: Start | None) -> Rule | None:
    """The rule for a consumer with this ``auto.offset.reset``; ``None``: new partitions are as any other."""
    max_age_ms = options.latest_max_age_ms
    if reset is not Start.LATEST or max_age_ms is None or max_age_ms < 0:
        max_age_ms = None
    start = options.new_partitions
    if start is None:
        return None if max_age_ms is None else Rule(Start.EARLIEST, max_age_ms)
    return None if start is reset else Rule(start, max_age_ms)


def judge(
    rule: Rule, known: Known, partition: Partition, *, assigned: float, now: float, deadline: float
) -> Verdict | float:
    """What the rule says of a partition without a committed offset, or until when to wait for what would decide.

    What counts is its age when it was ``assigned``. From ``deadline`` on it is a verdict. Seconds of one clock.
    """
    said = known.discovered.get(partition.topic, ())
    topic = _current(said, known.topic_ids.get(partition.topic), partition.partition)
    seen = topic.seen(partition.partition) if topic is not None else NEVER
    if seen == INITIAL:
        return Verdict(None, "it was there at the first discovery")
    if seen != NEVER:
        return _judge_by_age(rule, known.clock, seen, assigned, None if now >= deadline else deadline)
    clock = known.clock
    # Partitions are added at the end, and the rest of the topic was discovered: it came after the last look.
    is_later = clock is not None and bool(said) and (topic is None or partition.partition >= len(topic.seen_ms))
    is_looked_for = clock is not None and (not clock.is_live or now - clock.arrived <= ALIVE_S)
    if now < deadline and (is_later or is_looked_for):
        return deadline
    if is_later:
        return Verdict(rule.start, "it was made since its topic was looked at last")
    return Verdict(None, "its age is not known", is_known=False)


def _judge_by_age(
    rule: Rule, clock: Clock | None, seen_ms: int, assigned: float, wait_until: float | None
) -> Verdict | float:
    if rule.max_age_ms is None:
        return Verdict(rule.start, "it came after the first discovery")
    if clock is None:
        if wait_until is not None:
            return wait_until
        return Verdict(None, "its age is not known, for want of the broker's time", is_known=False)
    least = max(0, clock.reads(assigned) - seen_ms)
    age = f"it is {'' if clock.is_live else 'at least '}{least} ms old, and new up to {rule.max_age_ms} ms"
    if least > rule.max_age_ms:
        return Verdict(None, age)
    if not clock.is_live and wait_until is not None:
        return wait_until
    return Verdict(rule.start, age)


def _current(said: tuple[Discovered, ...], topic_id: str | None, partition: int) -> Discovered | None:
    """What is said of the topic that is there now; where nobody knows its id, what was said last of the partition."""
    if topic_id is None:

        def how_well(topic: Discovered) -> tuple[bool, bool, int]:
            return topic.recorded(partition) != NEVER, topic.seen(partition) != NEVER, topic.newest

        return max(said, key=how_well, default=None)
    return next((topic for topic in said if topic.topic_id == topic_id), None)

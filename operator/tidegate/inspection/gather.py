"""Looks at a cluster, twice where that is asked for, and hands what it sees to the judging: few requests, of many
groups each. Only this module asks Kafka, and it changes nothing there.

What is kept between the looks is bounded: the committed offsets of the first look, and the ends of the logs. Groups are
described, judged and forgotten batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.inspection.batches import Refusal, answers_of
from tidegate.inspection.brokers import COMPARED, of_brokers
from tidegate.inspection.judging import judged
from tidegate.inspection.report import Report, Unseen, sorted_findings
from tidegate.inspection.resetting import Verdict
from tidegate.inspection.seen import Before, ClusterSeen, GroupSeen
from tidegate.kafka.capabilities import Capabilities
from tidegate.kafka.errors import KafkaFailure, NotAuthorized
from tidegate.kafka.model import Group, GroupType, ListedGroup, LogBounds, Offsets, Subscription, Topic, TopicPartition
from tidegate.kafka.names import is_allowed
from tidegate.kafka.needed_rights import OWN
from tidegate.kafka.offset_records import OFFSETS_TOPIC, GroupLog
from tidegate.kafka.rights import Resource, Right
from tidegate.kafka.survey import Survey
from tidegate.reset.planning.checks import LeftByStreams
from tidegate.reset.planning.stopped_streams import changelogs_of
from tidegate.resources.connection import GroupKind

BATCH: Final = 500
"""Groups that are described and judged together."""

MOST_COMPARED: Final = 500_000
"""Committed offsets of the first look that are kept: about 60 MB. Groups beyond them are looked at once."""

LOGS_S: Final = 60.0
"""For reading the logs of all groups whose offsets may expire; one reading is bounded (``OffsetRetention.log``)."""

_CONSUMERS: Final = ("", "consumer")
_WITH_OFFSETS: Final = ("", GroupType.CLASSIC.value, GroupType.CONSUMER.value)


@dataclass(frozen=True, slots=True)
class Asked:
    """``groups``: names and patterns, none: all. ``watch``: how long the looks are apart; zero: one look. ``soon``: for
    :func:`tidegate.inspection.judging.judged`. ``exact``: of how many groups without members the log is read.
    ``probe``: whether brokers may be tried with groups of our own."""

    groups: tuple[str, ...] = ()
    watch: timedelta = timedelta(seconds=20)
    soon: timedelta = timedelta(hours=24)
    exact: int = 20
    probe: bool = False


@dataclass(slots=True)
class _First:
    """The first look. ``at_s``: when each batch of groups was asked, on the monotonic clock, by group."""

    committed: dict[str, Offsets] = field(default_factory=dict)
    at_s: dict[str, float] = field(default_factory=dict)
    bounds: dict[TopicPartition, LogBounds] = field(default_factory=dict)
    left_out: int = 0


class Audit:
    """One look at one cluster. For one thread, once."""

    def __init__(self, kafka: Kafka, survey: Survey, clock: Clock, asked: Asked) -> None:
        self._kafka = kafka
        self._survey = survey
        self._clock = clock
        self._asked = asked
        self._unseen: list[Unseen] = []
        self._refused: dict[str, Refusal] = {}
        """Groups that may not be described, or can't be, and why."""
        self._headless: set[TopicPartition] = set()
        self._hidden: set[str] = set()
        """Topics that members own partitions of, and that the principal does not see."""
        self._logs_left = asked.exact
        self._logs_until_s: float | None = None
        self._without_log = 0
        self._is_log_refused = False

    def report(self) -> Report:
        """Raises ``KafkaFailure`` where the cluster can't be reached or tells nothing of itself."""
        cluster = self._cluster()
        listed = self._listed()
        first = self._first_look(listed, cluster.topics) if self._asked.watch else None
        if first is not None:
            self._clock.sleep(self._asked.watch.total_seconds())
            cluster = replace(cluster, topics=self._topics_again(cluster.topics, first))
        findings, verdicts = list(of_brokers(cluster)), list[Verdict]()
        cluster = replace(cluster, at=self._clock.now())
        bounds: dict[TopicPartition, LogBounds] = {}
        for batch in _batches(listed):
            for seen in self._last_look(batch, cluster, first, bounds):
                found, how = judged(seen, cluster, self._asked.soon)
                findings += found
                verdicts.append(how)
        return Report(
            at=cluster.at,
            cluster_id=cluster.cluster.cluster_id,
            brokers=len(cluster.cluster.brokers),
            groups=len(verdicts),
            partitions=len(bounds),
            watched=self._asked.watch or None,
            probed=self._asked.probe,
            capabilities=cluster.capabilities,
            settings=_settings(cluster),
            findings=sorted_findings(findings),
            verdicts=tuple(sorted(verdicts, key=lambda v: v.group)),
            unseen=(*self._unseen, *self._left_out(cluster, listed, first)),
        )

    # --- the cluster --------------------------------------------------------------------------------------------------

    def _cluster(self) -> ClusterSeen:
        cluster = self._kafka.cluster()
        return ClusterSeen(
            self._clock.now(), cluster, self._kafka.topics(), self._capabilities(), self._broker_settings()
        )

    def _capabilities(self) -> Capabilities:
        try:
            return self._kafka.capabilities(list(GroupKind), probe=self._asked.probe)
        except KafkaFailure as failure:
            self._unseen.append(Unseen("what the brokers allow a reset", str(failure)))
            return {}

    def _broker_settings(self) -> Sequence[Mapping[str, str]]:
        what = "the brokers' settings: for how long offsets are kept, how many members a group may have"
        try:
            return self._survey.broker_settings()
        except NotAuthorized:
            needed = Right("DescribeConfigs", Resource.CLUSTER)
            self._unseen.append(Unseen(what, "the principal may not read them", str(needed)))
        except KafkaFailure as failure:
            self._unseen.append(Unseen(what, str(failure)))
        return ()

    def _listed(self) -> list[ListedGroup]:
        """Those that are asked about, without Tidegate's own markers and probes, by name."""
        patterns = self._asked.groups or ("*",)
        rows = {row.group_id: row for row in self._survey.listed()}
        return [rows[name] for name in sorted(rows) if not name.startswith(OWN) and is_allowed(name, patterns)]

    # --- the first look -----------------------------------------------------------------------------------------------

    def _first_look(self, listed: Sequence[ListedGroup], topics: Mapping[str, Topic]) -> _First:
        """Committed offsets first, then the logs' ends. Equal partitions are kept once, whoever reads them."""
        first = _First()
        kept, same = 0, dict[TopicPartition, TopicPartition]()
        for batch in _batches([row for row in listed if row.type in _WITH_OFFSETS and _is_of_consumers(row)]):
            if kept >= MOST_COMPARED:
                first.left_out += len(batch)
                continue
            at_s = self._clock.monotonic()
            for group_id, offsets in self._committed([row.group_id for row in batch]).items():
                first.committed[group_id] = {
                    same.setdefault(p, p): offset for p, offset in offsets.items() if p.topic in topics
                }
                first.at_s[group_id] = at_s
                kept += len(offsets)
        first.bounds.update(self._survey.bounds(same))
        return first

    def _topics_again(self, before: Mapping[str, Topic], first: _First) -> Mapping[str, Topic]:
        """Those that are there now. How the log of a topic ended that was made again meanwhile says nothing of the new
        one, which has its name."""
        topics = self._kafka.topics()
        others = {name for name, topic in before.items() if name in topics and topics[name].topic_id != topic.topic_id}
        if others:
            first.bounds = {p: each for p, each in first.bounds.items() if p.topic not in others}
        return topics

    def _committed(self, group_ids: Sequence[str]) -> Mapping[str, Offsets]:
        wanted = [group_id for group_id in group_ids if group_id not in self._refused]
        found, refused = answers_of(wanted, self._kafka.committed_of, self._kafka.lacking)
        self._refused |= refused
        return found

    # --- the last look ------------------------------------------------------------------------------------------------

    def _last_look(
        self,
        batch: Sequence[ListedGroup],
        cluster: ClusterSeen,
        first: _First | None,
        bounds: dict[TopicPartition, LogBounds],
    ) -> Iterator[GroupSeen]:
        """``bounds`` gets the ends of the logs that were not read in this look before."""
        described = self._described(
            [row.group_id for row in batch if row.type in _WITH_OFFSETS and _is_of_consumers(row)]
        )
        subscriptions = self._subscriptions(described)
        committed = self._committed(list(described))
        left = self._left_by_streams([g for g in committed if not described[g].has_members], cluster.topics)
        now_s = self._clock.monotonic()
        self._read_bounds(described, committed, cluster.topics, bounds)
        for row in batch:
            group_id = row.group_id
            if group_id in self._refused:
                continue
            group, offsets = described.get(group_id), committed.get(group_id, {})
            before = None
            if first is not None and group_id in first.committed:
                before = Before(first.committed[group_id], first.bounds, now_s - first.at_s[group_id])
            seen = GroupSeen(row, group, offsets, bounds, before, subscriptions.get(group_id, {}))
            seen = replace(seen, left=left.get(group_id))
            yield replace(seen, log=self._log(seen)) if group is not None else seen

    def _left_by_streams(self, group_ids: Sequence[str], topics: Mapping[str, Topic]) -> Mapping[str, LeftByStreams]:
        try:
            found = self._kafka.committed_by_streams(group_ids)
            return {g: LeftByStreams(changelogs_of(g, topics, self._kafka)) for g in found}
        except KafkaFailure as failure:
            what = f"which of {len(group_ids):,} groups without members are Kafka Streams applications"
            self._unseen.append(Unseen(what, str(failure)))
            return {}

    def _described(self, group_ids: Sequence[str]) -> Mapping[str, Group]:
        wanted = [group_id for group_id in group_ids if group_id not in self._refused]
        found, refused = answers_of(wanted, self._kafka.groups, self._kafka.lacking)
        self._refused |= refused
        return found

    def _subscriptions(self, groups: Mapping[str, Group]) -> Mapping[str, Mapping[str, Subscription]]:
        """Without them a strategy that needs them is not chosen."""
        classic = [name for name, group in groups.items() if group.type is GroupType.CLASSIC and group.has_members]
        if not classic:
            return {}
        try:
            return self._survey.subscriptions(classic)
        except KafkaFailure as failure:
            self._unseen.append(Unseen(f"the subscriptions of {len(classic):,} groups", str(failure)))
            return {}

    def _read_bounds(
        self,
        groups: Mapping[str, Group],
        committed: Mapping[str, Offsets],
        topics: Mapping[str, Topic],
        bounds: dict[TopicPartition, LogBounds],
    ) -> None:
        """Of all partitions of the topics that the groups read or have offsets for. An end that was read for an earlier
        batch is read again where a group seems to be past it."""
        read = {p.topic for offsets in committed.values() for p in offsets}
        owned = {p.topic for group in groups.values() for p in group.assigned}
        self._hidden |= {name for name in owned if name not in topics}
        wanted = [p for name in read | owned if name in topics for p in topics[name].all_partitions()]
        missing = [p for p in wanted if p not in bounds and p not in self._headless]
        bounds.update(self._survey.bounds(missing))
        self._headless |= {p for p in missing if p not in bounds}
        past = {
            p for offsets in committed.values() for p, at in offsets.items() if p in bounds and at > bounds[p].latest
        }
        ends = self._survey.bounds(past)
        bounds.update(ends)
        # An end from before its offset was committed, which nobody tells again, says nothing of where that lies.
        for p in past - ends.keys():
            del bounds[p]
            self._headless.add(p)

    def _log(self, seen: GroupSeen) -> GroupLog | None:
        """What the coordinator's log says of a group whose offsets may expire, for as many groups as are asked for."""
        group = seen.group
        if group is None or not group.is_vacant or not seen.committed:
            return None
        if self._logs_until_s is None:
            self._logs_until_s = self._clock.monotonic() + LOGS_S
        log = GroupLog()
        try:
            while self._logs_left > 0 and self._clock.monotonic() < self._logs_until_s:
                log = self._kafka.retention.log(seen.group_id, log)
                if log.complete:
                    self._logs_left -= 1
                    return log
            self._without_log += 1
        except KafkaFailure as failure:
            self._logs_left, self._is_log_refused = 0, True
            right = str(Right("Read", Resource.TOPIC, OFFSETS_TOPIC)) if isinstance(failure, NotAuthorized) else ""
            self._unseen.append(Unseen("exactly when committed offsets expire", str(failure), right))
        return None

    # --- what is missing ----------------------------------------------------------------------------------------------

    def _left_out(self, cluster: ClusterSeen, listed: Sequence[ListedGroup], first: _First | None) -> Iterator[Unseen]:
        if not listed:
            yield Unseen(
                "any group",
                "the brokers list no group with these names that the principal may see, and do not tell of others",
                "Describe on group *",
            )
        for right in sorted({refusal.right for refusal in self._refused.values()}):
            names = sorted(name for name, refusal in self._refused.items() if refusal.right == right)
            what = f"{len(names):,} of {len(listed):,} groups, such as {names[0]}"
            yield Unseen(what, self._refused[names[0]].why, right)
        if not cluster.topics:
            yield Unseen("any topic", "the principal may describe none, or there is none", "Describe on topic *")
        if self._hidden:
            some = ", ".join(sorted(self._hidden)[:5])
            yield Unseen(
                f"{len(self._hidden):,} topics that groups read, such as {some}",
                "the principal may not describe them, or they are internal, so none of their offsets was compared",
                "Describe on the topics",
            )
        if self._headless:
            some = ", ".join(map(str, sorted(self._headless)[:5]))
            yield Unseen(
                f"the logs of {len(self._headless):,} partitions, such as {some}", "no leader reported their ends"
            )
        if self._without_log and not self._is_log_refused:
            yield Unseen(
                f"exactly when the offsets of {self._without_log:,} more groups without members expire",
                f"their logs were not read: at most {self._asked.exact} (--exact) are read, within {LOGS_S:.0f} s",
            )
        if first is not None and first.left_out:
            yield Unseen(
                f"whether {first.left_out:,} groups make progress",
                f"more than {MOST_COMPARED:,} committed offsets are not compared: name fewer groups with --group",
            )


def _is_of_consumers(row: ListedGroup) -> bool:
    return row.protocol_type in _CONSUMERS


def _batches(rows: Sequence[ListedGroup]) -> Iterator[Sequence[ListedGroup]]:
    for at in range(0, len(rows), BATCH):
        yield rows[at : at + BATCH]


def _settings(cluster: ClusterSeen) -> Mapping[str, tuple[str, ...]]:
    told = {name: {settings[name] for settings in cluster.settings if name in settings} for name in COMPARED}
    return {name: tuple(sorted(values)) for name, values in told.items() if values}

"""``--reset-offsets``: plans as the operator makes them, runs as the operator runs them, with their store on disk.

Unlike Kafka's tool it needs no stopped group: a live one is reset in the ways of ``tidegate.reset.ways``, and the run's
store keeps what was committed before, so that a run that was cut off is put back by the next one.
"""

from __future__ import annotations

import io
import socket
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn, TypeVar, assert_never

from tidegate.audit.records import Actor, Attribution, AuditTopic
from tidegate.cli.ending import INTERRUPTED
from tidegate.cli.errors import CommandFailed, UsageError, in_the_tools_words
from tidegate.cli.java_text import parse_datetime, parse_duration
from tidegate.cli.options import Options, Scenario, TopicArgument
from tidegate.cli.own_runs import ToldStore, alone, run_prefix, user
from tidegate.cli.screen import Screen
from tidegate.cli.tables import reset_table
from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import Offsets, Topic, TopicPartition
from tidegate.printable import visible
from tidegate.reset.applying.gates import BY_HAND
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.document import StoreFailure
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import (
    ByDuration,
    FromFile,
    PartitionOffset,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
)
from tidegate.reset.planning.offsets_csv import BadOffsetsFile, parse_offsets, write_group_offsets, write_offsets
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.reset.runs import job
from tidegate.reset.store import RunStore, StaleAttempt
from tidegate.resources.reset import ResetPhase

T = TypeVar("T")

DEADLINE: Final = timedelta(minutes=15)
"""For one group's run, as the resource has it by default."""

REASON: Final = "Interrupted"
"""Of a run that is ended by hand."""

_MAX_OFFSET: Final = 2**63 - 1


def runs_folder(environment: Mapping[str, str]) -> Path:
    """Where runs are kept: ``$XDG_STATE_HOME/tidegate/runs``, or below ``~/.local/state``."""
    state = environment.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "tidegate" / "runs"


@dataclass(frozen=True, slots=True)
class Resetting:
    """One command's reset of some groups, one after the other."""

    options: Options
    connection: Connection
    kafka: Kafka
    clock: Clock
    screen: Screen
    folder: Path

    def run(self, groups: tuple[str, ...]) -> int:
        """Print the new offsets of all groups. 1: a reset was asked for and at least one group was not reset. 130: it
        was interrupted, and the groups after that one were not begun.

        Raises ``UsageError``.
        """
        for warning in self.options.warnings:
            self.screen.note(warning)
        text = self._file()
        offsets: dict[str, Offsets] = {}
        failed = interrupted = False
        for done, group in enumerate(groups, 1):
            try:
                offsets[group] = self._one(group, text)
            except _Interrupted as interruption:
                interrupted = True
                if str(interruption):
                    self.screen.error(str(interruption))
                if groups[done:]:
                    self.screen.note(f"Not begun: {', '.join(map(visible, groups[done:]))}")
                break
            except CommandFailed as failure:
                failed = True
                self.screen.error(str(failure))
            except KafkaFailure as failure:
                # Of one group of many; a run that is not over is put back by the next command.
                failed = True
                self.screen.error(in_the_tools_words(failure))
        code = INTERRUPTED if interrupted else 1 if failed and self.options.execute else 0
        if (failed or interrupted) and not offsets:
            return code
        if self.options.export:
            if isinstance(self.screen.out, io.TextIOWrapper):
                self.screen.out.reconfigure(encoding="utf-8")  # as --from-file reads it, whatever the terminal has
            self.screen.show(_exported(offsets, single=len(self.options.groups) == 1) + "\n")
        else:
            self.screen.show(reset_table(offsets))
        return code

    def _file(self) -> str:
        if self.options.scenario is not Scenario.FROM_FILE:
            return ""
        path = Path(self.options.scenario_value)
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--from-file {path}: {error}") from error

    def _one(self, group: str, text: str) -> Offsets:
        """The group's new offsets. Raises ``CommandFailed``."""
        now = self.clock.now()
        topics = self.kafka.topics()
        committed = self.kafka.committed(group)
        scope = self._scope(topics, committed)
        if scope is not None and not scope:
            return {}
        target = self._target(group, text, scope or {}, committed)
        request = self._request(group, () if isinstance(target, FromFile) else _selections(scope or {}), target, now)
        if self.options.execute:
            return self._execute(request)
        if self.options.scenario is Scenario.TO_CURRENT and isinstance(target, FromFile):
            # What is committed now, as it is: an export keeps also what lies outside the log.
            return {o.topic_partition: o.offset for o in target.offsets}
        try:
            plan = make_plan(request, self.kafka, now)
        except PlanRefused as refused:
            raise _failed(refused.message) from refused
        self._explain(plan)
        return plan.targets

    # --- what was asked for -------------------------------------------------------------------------------------------

    def _scope(self, topics: Mapping[str, Topic], committed: Offsets) -> dict[str, frozenset[int]] | None:
        """Partition numbers by topic; ``None``: what the file says. Raises ``CommandFailed``."""
        if self.options.scenario is Scenario.FROM_FILE:
            return None
        if self.options.all_topics:
            gone = sorted(p for p in committed if not _exists(p, topics))
            if gone:
                self.screen.note(f"Left out, because these partitions no longer exist: {', '.join(map(str, gone))}")
            return _by_topic(p for p in committed if _exists(p, topics))
        return _by_topic(named_partitions(self.options.topics, topics))

    def _target(self, group: str, text: str, scope: Mapping[str, frozenset[int]], committed: Offsets) -> Target:
        value = self.options.scenario_value
        match self.options.scenario:
            case Scenario.TO_EARLIEST:
                return ToEarliest()
            case Scenario.TO_LATEST:
                return ToLatest()
            case Scenario.TO_OFFSET:
                return ToOffset(_whole_number(value, Scenario.TO_OFFSET))
            case Scenario.SHIFT_BY:
                return ShiftBy(_whole_number(value, Scenario.SHIFT_BY))
            case Scenario.TO_DATETIME:
                return ToTimestamp(_parsed(parse_datetime, value))
            case Scenario.BY_DURATION:
                return ByDuration(_parsed(parse_duration, value))
            case Scenario.TO_CURRENT:
                return self._current(scope, committed)
            case Scenario.FROM_FILE:
                try:
                    return FromFile(parse_offsets(text, group), value)
                except BadOffsetsFile as error:
                    raise CommandFailed(f"--from-file {value}: {error}") from error
            case None:
                raise UsageError("Option '[reset-offsets]' requires a scenario")
            case other:
                assert_never(other)

    def _current(self, scope: Mapping[str, frozenset[int]], committed: Offsets) -> FromFile:
        """Where the group is; the end of the log where it has no offset (``OffsetsUtils.resetToCurrent``)."""
        partitions = sorted(TopicPartition(topic, n) for topic, numbers in scope.items() for n in numbers)
        without = [p for p in partitions if p not in committed]
        bounds = self.kafka.log_bounds(without) if without else {}
        offsets = ((p, committed[p] if p in committed else bounds[p].latest) for p in partitions)
        return FromFile(tuple(PartitionOffset(p.topic, p.partition, o) for p, o in offsets), "--to-current")

    def _request(self, group: str, selections: tuple[Selection, ...], target: Target, now: datetime) -> RunRequest:
        run_id = f"cli-{now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}"
        return RunRequest(
            run_uid=f"{BY_HAND}/{run_id}",
            run_id=run_id,
            group_id=group,
            connection=self.connection,
            selections=selections,
            target=target,
            asked_by=f"`tidegate groups` on {socket.gethostname()}, kept in {self.folder}",
            settings=ApplySettings(
                in_flight=self.options.in_flight,
                max_standstill=self.options.max_standstill,
                drain_timeout=self.options.drain_timeout,
                deadline=now + DEADLINE,
            ),
        )

    # --- doing it -----------------------------------------------------------------------------------------------------

    def _execute(self, request: RunRequest) -> Offsets:
        prefix = run_prefix(self.connection, request.group_id)
        try:
            with alone(self.folder, prefix, request.group_id):
                self._put_back_leftovers(prefix)
                store = ToldStore(
                    self.folder, f"{prefix}-{request.run_id}", self.clock, self._tell_waiting(request.group_id)
                )
                store.create(request)
                result = self._carried_out(self._recorded(store))
                plan = store.load().plan
        except (StoreFailure, StaleAttempt) as failure:
            raise CommandFailed(str(failure)) from failure
        if plan is not None:
            # The result tells by which way: owners can make another one necessary than was planned.
            self._explain(replace(plan, way=None))
        if result.phase is not ResetPhase.SUCCEEDED or plan is None:
            raise _failed(result.message)
        self.screen.note(f"{request.group_id}: {result.message}")
        return plan.targets

    def _tell_waiting(self, group: str) -> Callable[[str], None]:
        return lambda waits_for: self.screen.note(visible(f"{group}: waiting: {waits_for}"))

    def _recorded(self, store: DirectoryRunStore) -> RunStore:
        """With in whose name its changes are recorded, where they are."""
        if self.options.audit_topic is None:
            return store
        topic = AuditTopic(self.options.audit_topic, self.options.audit_required)
        attribution = Attribution(topic, Actor("Command", socket.gethostname() or "unknown"), requester=user())
        return ConfinedRunStore(store, None, attribution=attribution)

    def _carried_out(self, store: RunStore) -> RunResult:
        try:
            result = job.execute(store, self.kafka, self.clock)
        except KeyboardInterrupt:
            self._interrupted(store)
        if result is None:
            raise CommandFailed("the run waits for an approval, although none was requested")
        return result

    def _interrupted(self, store: RunStore) -> NoReturn:
        """Ends the run. Raises ``_Interrupted``, or ``KeyboardInterrupt`` where that is interrupted as well."""
        group = store.load().request.group_id
        later = (
            "Its offsets were not rolled back, and its partitions may still be held. The next reset of the "
            "group with --execute, by this user on this machine, begins by rolling the offsets back"
        )
        self.screen.note("Interrupted: rolling the offsets back")
        try:
            result = self._settle(store, "It was interrupted")
        except KeyboardInterrupt:
            self.screen.note(f"{visible(group)}: interrupted again. {later}")
            raise
        except (KafkaFailure, StoreFailure, StaleAttempt) as failure:
            raise _Interrupted(in_the_tools_words(f"{group}: {failure}. {later}")) from failure
        if result.phase is ResetPhase.SUCCEEDED:
            # It had just ended.
            self.screen.note(visible(f"{group}: {result.message}"))
            raise _Interrupted
        raise _Interrupted(in_the_tools_words(f"{group}: {result.message}"))

    def _put_back_leftovers(self, prefix: str) -> None:
        """Runs of this group whose process ended before they did: nobody else would put their offsets back."""
        for file in sorted(self.folder.glob(f"{prefix}-*.json")):
            store = DirectoryRunStore(self.folder, file.stem, clock=self.clock)
            if store.load().result is None:
                result = self._settle(
                    self._recorded(store), "The process that ran it ended before the reset was finished"
                )
                self.screen.note(f"An earlier reset did not finish ({file.stem}): {result.message}")

    def _settle(self, store: RunStore, message: str) -> RunResult:
        return job.settle(store, self.kafka, self.clock, reason=REASON, message=message)

    def _explain(self, plan: Plan) -> None:
        """What the tool's table does not say, beside it."""
        way = f", strategy {plan.way}" if plan.way is not None else ""
        self.screen.note(
            f"{visible(plan.group_id)}: {plan.moved} of {len(plan.partitions)} partition(s) move, "
            f"{plan.records_replayed:,} record(s) read again, {plan.records_skipped:,} skipped{way}"
        )
        for note in plan.notes:
            self.screen.note(visible(f"{plan.group_id}: {note}"))


class _Interrupted(Exception):
    """The run of a group was interrupted, and has been ended; the message says how, unless it had succeeded."""


def named_partitions(arguments: tuple[TopicArgument, ...], topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """What ``--topic`` names (``OffsetsUtils.parseTopicPartitionsToReset``). Raises ``CommandFailed``."""
    partitions = [p for argument in arguments for p in argument.named()]
    unknown = sorted({a.topic for a in arguments if a.topic not in topics})
    if unknown:
        raise CommandFailed(f"no such topic, or no permission to describe it: {', '.join(unknown)}")
    missing = [str(p) for p in partitions if not _exists(p, topics)]
    if missing:
        raise CommandFailed(f'The partitions "{",".join(missing)}" do not exist')
    whole = [
        p for argument in arguments if argument.partitions is None for p in topics[argument.topic].all_partitions()
    ]
    return list(dict.fromkeys([*partitions, *whole]))


def _exists(partition: TopicPartition, topics: Mapping[str, Topic]) -> bool:
    topic = topics.get(partition.topic)
    return topic is not None and partition.partition < topic.partitions


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, frozenset[int]]:
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for partition in partitions:
        numbers[partition.topic].add(partition.partition)
    return {topic: frozenset(of) for topic, of in numbers.items()}


def _selections(scope: Mapping[str, frozenset[int]]) -> tuple[Selection, ...]:
    return tuple(Selection(topic, numbers) for topic, numbers in sorted(scope.items()))


def _whole_number(text: str, scenario: Scenario) -> int:
    try:
        number = int(text)
    except ValueError:
        number = _MAX_OFFSET + 1
    if abs(number) > _MAX_OFFSET:
        raise UsageError(f"Cannot parse argument '{text}' of option {scenario}")
    return number


def _parsed(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise _failed(error) from error


def _failed(message: object) -> CommandFailed:
    """In the tool's words."""
    return CommandFailed(in_the_tools_words(message))


def _exported(offsets: Mapping[str, Offsets], *, single: bool) -> str:
    rows = {
        group: tuple(PartitionOffset(p.topic, p.partition, o) for p, o in sorted(of.items()))
        for group, of in sorted(offsets.items())
    }
    if single:
        return "".join(write_offsets(of) for of in rows.values())
    return write_group_offsets(rows)

"""What happens, in order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from typing import Any, Final

import yaml

from demo.access_log import read_requests
from demo.by_content import first_logged, place_of
from demo.lookout import ALL, Lookout, Shown, consumer_processes, stored_run
from demo.pausing import STANDS_S, PauseFacts, Reading, judge_pause
from demo.screen import Screen
from demo.stage import (
    API_VERSION,
    CONNECTION,
    CONTROL_TOPIC,
    GROUP,
    JAVA,
    NAMESPACE,
    PYTHON,
    TOPIC,
    WATCHERS,
    Stage,
    set_stage,
)
from demo.traffic import Traffic
from demo.verdict import History, RunFacts, judge, stood_at
from support.clients import ClientKind, ConsumerFleet
from support.deliveries import Partition
from tidegate.resources.reset import ResetPhase

PAST: Final = 4_000
"""Requests that are on the topic before the consumers start; the others come while they watch."""

PER_SECOND: Final = 20.0
STATUS_500: Final = '" 500 '
"""As ``zgrep`` finds it in the log."""

_COMMITTED_S: Final = 120.0
_CONNECTED_S: Final = 60.0
_PAUSED_S: Final = 120.0
_RUN_S: Final = 240.0
_LOOK_S: Final = 0.1
_BETWEEN_S: Final = 6.0
"""For the spectator: live traffic between the resets, long enough that the owners commit what they have replayed."""


class StoryError(Exception):
    """Something that has to happen did not; the message says what, and what was seen instead."""


def tell(screen: Screen) -> bool:
    """Play it all; whether the checker found everything as it should be."""
    # A slow machine comes to the log's end before the story's: then its requests come again.
    requests = cycle(read_requests())
    with set_stage(screen.say) as stage, Traffic(stage.bootstrap, TOPIC, requests, per_second=PER_SECOND) as web:
        sent = web.send_past(PAST)
        screen.say(f"{sent:,} past requests are on the topic, each with its own time, keyed by client")
        with (
            ConsumerFleet("librdkafka", stage.bootstrap, GROUP, [TOPIC], members=4, processes=4) as fleet,
            _watchers(stage) as watchers,
            Lookout(stage, web, fleet, screen) as lookout,
        ):
            watchers.add(JAVA, kind=ClientKind.JAVA)
            fleet.wait_assigned(ALL)
            watchers.wait_assigned(ALL)
            web.begin()
            screen.say(
                f"4 ordinary consumers of group {GROUP} read it, while {PER_SECOND:.0f} requests a second keep coming"
            )
            _wait_until_committed(lookout)
            return _Play(stage, web, fleet, watchers, lookout, screen).perform()


def _watchers(stage: Stage) -> ConsumerFleet:
    """Named by what they are written in: Java's is the first by name, so the assignor gives it the first half."""
    return ConsumerFleet(
        "librdkafka",
        stage.bootstrap,
        WATCHERS,
        [TOPIC],
        [PYTHON],
        client_ids=True,
        agent=True,
        control_topic=CONTROL_TOPIC,
    )


@dataclass(frozen=True, slots=True)
class _Play:
    stage: Stage
    web: Traffic
    fleet: ConsumerFleet
    watchers: ConsumerFleet
    lookout: Lookout
    screen: Screen

    def perform(self) -> bool:
        processes = consumer_processes()
        self.lookout.headline("Four consumers read; nothing unusual")
        self.screen.table(self.lookout.look())
        self._connect()

        asked_time = datetime.fromisoformat(self._spec_of("replay.yaml")["to"]["timestamp"])
        partitions = ALL[:3]
        by_time = {p: (o, o) for p, o in self.web.first_offsets_at(asked_time, partitions).items()}
        committed = self._committed()
        replay = self._run("replay.yaml", "Partitions 0 to 2 go back to 18 May, live", by_time)
        self._go_on()
        # Not before what the group had committed, not after what its consumers had been given.
        given = stood_at(self.fleet.records(), partitions, replay.applied_at)
        as_before = {p: (committed[p], given[p]) for p in partitions}
        undo = self._run("undo.yaml", "The reset is undone: back to where the group stood before", as_before)
        self._go_on()
        by_content = self._find()
        self._go_on()
        pause = self._pause_and_reset(asked_time)

        self.lookout.headline("The traffic ends; the consumers read to the end")
        self.lookout.turn_to(None)
        self.web.stop()
        ends = self.web.ends(ALL)
        for fleet, group in ((self.fleet, GROUP), (self.watchers, WATCHERS)):
            fleet.wait_read_to(ends)
            deadline = time.monotonic() + _COMMITTED_S
            while self._committed(group) != ends and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
        judgement = judge(
            History(
                deliveries=self.fleet.records(),
                events=self.fleet.events(),
                acked=self.web.acked(),
                committed=self._committed(),
                processes_before=processes,
                processes_after=consumer_processes(),
                runs=(replay, undo, by_content),
            )
        )
        read = Reading(self.watchers.records(), self.watchers.events(), self.web.acked(), self._committed(WATCHERS))
        paused = judge_pause(pause, read)
        well = judgement.well and all(f.passed is not False for f in paused)
        self.screen.table(self.lookout.look())
        self.screen.verdict([(f.passed, f.sentence) for f in (*judgement.findings, *paused)], well=well)
        return well

    # --- scenes -------------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._apply("connection.yaml")
        deadline = time.monotonic() + _CONNECTED_S
        message = "no status"
        while time.monotonic() < deadline:
            self._check_operator()
            connection = self.stage.cluster.get(API_VERSION, "KafkaConnection", CONNECTION, NAMESPACE) or {}
            status = connection.get("status", {})
            ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), None)
            if ready is not None and ready["status"] == "True":
                self.screen.say(f"KafkaConnection {CONNECTION} is Ready: {ready['message']}")
                return
            message = ready["message"] if ready is not None else message
            time.sleep(_LOOK_S)
        raise StoryError(f"KafkaConnection {CONNECTION} is not Ready after {_CONNECTED_S:.0f} s: {message}")

    def _run(self, file: str, headline: str, expected: Mapping[Partition, tuple[int, int]]) -> RunFacts:
        """Apply the reset and see it to the end."""
        run_id = self._name_of(file)
        applied_at = datetime.now(UTC)
        self.lookout.headline(headline)
        self.lookout.follow(run_id)
        reset = self._apply_and_wait(file)
        run, status = stored_run(self.stage, reset), reset["status"]
        if run is None or run.result is None:
            raise StoryError(f"reset {run_id} ended as {status['phase']} without a result: {status}")
        still = status.get("standstill")
        facts = RunFacts(
            run_id=run_id,
            applied_at=applied_at,
            finished_at=run.result.finished_at,
            phase=run.result.phase.value,
            way=run.result.way.value if run.result.way is not None else "none",
            targets={(p.topic, p.partition): o for p, o in run.plan.targets.items()} if run.plan is not None else {},
            expected=expected,
            standstill=f"status: {still['p50']}, {still['max']}" if still else "none in the status",
            message=run.result.message,
            redone=run.result.redone,
        )
        self.screen.say(f"reset {run_id}: {facts.phase}: {facts.message}")
        self.screen.table(self.lookout.look())
        return facts

    def _find(self) -> RunFacts:
        """Back to a request that is known by what it is; held against what ``zgrep`` finds in the log."""
        record = self._spec_of("first-500.yaml")["to"]["record"]
        line = first_logged(STATUS_500, datetime.fromisoformat(record["from"]))
        partition, offset = place_of(line, self.stage.bootstrap, ALL)
        facts = self._run(
            "first-500.yaml",
            "Spark finds the first request with status 500 after noon of 18 May; its partition goes back there",
            {partition: (offset, offset)},
        )
        self.screen.say(
            f"zgrep '{STATUS_500}' access_log.gz finds the same request; partition {partition[1]} has it "
            f"at {offset}: " + line[:91].decode(errors="replace")
        )
        return facts

    def _apply_and_wait(self, file: str) -> dict[str, Any]:
        """Apply an OffsetReset and wait for its end; the resource as it is then."""
        name = self._name_of(file)
        self._apply(file)
        deadline = time.monotonic() + _RUN_S
        while True:
            reset = self._resource("OffsetReset", name)
            status = reset.get("status") or {}
            if "phase" in status and ResetPhase(status["phase"]).is_final:
                return reset
            if (stuck := _stalled(reset)) is not None:
                raise StoryError(f"reset {name} can't begin: {stuck}")
            if time.monotonic() > deadline:
                raise StoryError(f"reset {name} has not ended after {_RUN_S:.0f} s: {status}")
            self._check_operator()
            time.sleep(_LOOK_S)

    def _pause_and_reset(self, asked_time: datetime) -> PauseFacts:
        """The second group, whose consumers run the agent: a partition of each is paused, reset while paused, let
        go."""
        paused = (ALL[3], ALL[5])
        owners = {p: self.watchers.owners()[p] for p in paused}
        if set(owners.values()) != {JAVA, PYTHON}:
            raise StoryError(
                f"one partition of each consumer of {WATCHERS} is to be paused, but their owners are {owners}"
            )
        whose = " and ".join(f"{p[1]} ({owner})" for p, owner in owners.items())
        self.lookout.turn_to(Shown(WATCHERS, self.watchers))
        self.lookout.headline(f"Group {WATCHERS} runs the agent: its partitions {whose} are paused, the others go on")
        self.screen.say(
            f"the code of its consumers knows nothing of it: {JAVA}'s was started with "
            f"-javaagent:tidegate-agent.jar, {PYTHON}'s with TIDEGATE_AGENT=1"
        )
        applied_at = time.time()
        self._apply("pause.yaml")
        status = self._wait_paused()
        paused_at = time.time()
        self.lookout.turn_to(Shown(WATCHERS, self.watchers, frozenset(paused)))
        rows: list[dict[str, Any]] = status.get("partitions", [])
        stopped_at = {p: row["offset"] for p in paused for row in rows if row["partition"] == p[1] and "offset" in row}
        self.screen.say(
            f"{status['paused']} partition(s) paused, {paused_at - applied_at:.1f} s after the pause was applied"
        )
        self.lookout.headline(f"Group {WATCHERS}: the paused partitions go back to 18 May, and stay paused")
        reset_began = time.time()
        reset = self._apply_and_wait("replay-while-paused.yaml")["status"]
        committed = self._committed(WATCHERS)
        self.screen.say(f"reset replay-while-paused: {reset['phase']}, strategy {reset.get('way')}")
        ends = self.web.ends(ALL)
        deadline = time.monotonic() + STANDS_S
        while time.monotonic() < deadline:
            self._check_operator()
            time.sleep(_LOOK_S)
        self.watchers.wait_read_to({p: end for p, end in ends.items() if p not in paused})
        self.screen.table(self.lookout.look())
        released_at = time.time()
        self.stage.cluster.delete(API_VERSION, "ConsumerGroupPause", WATCHERS, NAMESPACE)
        self.screen.act(f"kubectl delete consumergrouppause {WATCHERS}", "", "deleted")
        self.watchers.wait_flowing(paused, since=released_at)
        flowed_at = time.time()
        self.lookout.turn_to(Shown(WATCHERS, self.watchers))
        self.screen.say(f"partitions {whose} of {WATCHERS} go on")
        return PauseFacts(
            owners=owners,
            applied_at=applied_at,
            paused_at=paused_at,
            stopped_at=stopped_at,
            reset_began=reset_began,
            phase=reset["phase"],
            way=reset.get("way", "none"),
            message=str(reset),
            targets={p: committed[p] for p in paused if p in committed},
            expected=self.web.first_offsets_at(asked_time, paused),
            ends=ends,
            released_at=released_at,
            flowed_at=flowed_at,
        )

    def _wait_paused(self) -> dict[str, Any]:
        """The pause's status once it says Paused."""
        deadline = time.monotonic() + _PAUSED_S
        while True:
            status: dict[str, Any] = self._resource("ConsumerGroupPause", WATCHERS).get("status", {})
            if status.get("phase") == "Paused":
                return status
            if time.monotonic() > deadline:
                raise StoryError(f"ConsumerGroupPause {WATCHERS} is not Paused after {_PAUSED_S:.0f} s: {status}")
            self._check_operator()
            time.sleep(_LOOK_S / 2)

    def _go_on(self) -> None:
        """Every partition delivers again, and some more traffic."""
        self.fleet.wait_for(self._caught_up, 60, "caught up after a reset")
        deadline = time.monotonic() + _BETWEEN_S
        while time.monotonic() < deadline:
            self._check_operator()
            time.sleep(_LOOK_S)

    # --- small things -------------------------------------------------------------------------------------------------

    def _caught_up(self) -> bool:
        ends = self.web.ends(ALL)
        last = {p: self.fleet.last_delivery(p) for p in ALL}
        # Live traffic goes on: a few records are always on their way.
        return all(d is not None and d.offset + 1 >= ends[p] - PER_SECOND for p, d in last.items())

    def _apply(self, file: str) -> None:
        document = self.stage.resource(file)
        answer = self.stage.cluster.apply(document)
        self.screen.act(f"kubectl apply --server-side -f demo/resources/{file}", document, answer)

    def _spec_of(self, file: str) -> dict[str, Any]:
        spec: dict[str, Any] = yaml.safe_load(self.stage.resource(file))["spec"]
        return spec

    def _name_of(self, file: str) -> str:
        return str(yaml.safe_load(self.stage.resource(file))["metadata"]["name"])

    def _resource(self, kind: str, name: str) -> dict[str, Any]:
        resource = self.stage.cluster.get(API_VERSION, kind, name, NAMESPACE)
        if resource is None:
            raise StoryError(f"{kind} {name} is gone")
        return resource

    def _committed(self, group: str = GROUP) -> dict[Partition, int]:
        return {(p.topic, p.partition): o for p, o in self.stage.kafka.committed(group).items()}

    def _check_operator(self) -> None:
        if not self.stage.operator.alive:
            raise StoryError(f"the operator ended:\n{self.stage.operator.tail()}")


def _stalled(reset: dict[str, Any]) -> str | None:
    """Why the operator can't go on with the reset as it is now; ``None`` where it can."""
    status = reset.get("status", {})
    if status.get("observedGeneration") != reset["metadata"]["generation"]:
        return None
    stalled = next((c for c in status.get("conditions", ()) if c["type"] == "Stalled"), None)
    return stalled["message"] if stalled is not None and stalled["status"] == "True" else None


def _wait_until_committed(lookout: Lookout) -> None:
    """Every partition has a committed offset: what a group that has run for a while has."""
    lookout.headline("Four consumers read the past; first commits")
    deadline = time.monotonic() + _COMMITTED_S
    while any(row.committed is None for row in lookout.rows()):
        if time.monotonic() > deadline:
            raise StoryError(f"the consumers have not committed all partitions after {_COMMITTED_S:.0f} s")
        time.sleep(_LOOK_S)

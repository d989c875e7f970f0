"""One story: twenty resets and twenty pauses, under whose leaders the process ends, or stands still and wakes."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from kubernetes import client as kube

from support.operator_process import until
from support.takeover.judging import FINAL
from support.takeover.logs import hold_key
from support.takeover.plan import EPISODES, MOST_TRIES, SHORT, Episode, Fault, Moment, PauseMoment, Whose
from support.takeover.replicas import GAVE_UP, Replica
from support.takeover.stage import PARTITIONS, PAUSED, Stage, topic_of
from support.takeover.watching import Version
from tidegate.control.records import HoldKey
from tidegate.pause.holds import holder, is_a_pause
from tidegate.reset.runs.request import run_name, run_uid
from tidegate.resources.reset import ResetPhase

STANDING: Final = 3
"""So many pauses stand over the faults of others."""
OVER: Final = "(over)"
"""The run had ended before the signal came."""

_SOON_S: Final = 90.0
_OVER_S: Final = 240.0
_AWAKE_BESIDE_S: Final = 2.0
"""Who was frozen wakes at most so long after another one leads: while that one goes on with its work."""


@dataclass(slots=True)
class AskedReset:
    """An OffsetReset as it was asked for at `t` (epoch seconds). `groups`: those that it is of."""

    name: str
    uid: str
    t: float
    whose: Whose
    groups: tuple[str, ...]
    moment: Moment

    @property
    def document(self) -> str:
        """Its run's ConfigMap."""
        return run_name(self.name, self.uid)

    @property
    def run_uid(self) -> str:
        return run_uid(self.uid, self.name)


@dataclass(slots=True)
class AskedPause:
    """A pause of one partition; `let_go`: when its end was asked for, epoch seconds. `deleted`: by deleting it."""

    name: str
    hold: HoldKey
    deleted: bool
    let_go: float | None = None


@dataclass(frozen=True, slots=True)
class Struck:
    """What came of one episode. Times are epoch seconds.

    `hit`: what the reset was at as its leader was struck, by its document; `pause_hit`: the pause that this fault was
    aimed at, by its status. `under_way`: all phases that resets and pauses were in. `woken`: when SIGCONT was sent.
    """

    episode: Episode
    reset: str
    document: str
    t: float
    leader: str
    successor: str
    hit: str
    pause_hit: str
    under_way: Mapping[str, int]
    woken: float | None
    over: float

    @property
    def is_aimed_well(self) -> bool:
        return self.hit == self.episode.moment


@dataclass(slots=True)
class Story:
    """Plays all episodes on a stage. `say`: is told of each as it is over."""

    stage: Stage
    seed: int = 0
    say: Callable[[str], None] = print
    began: float = field(default_factory=time.time)
    resets: list[AskedReset] = field(default_factory=list)
    pauses: list[AskedPause] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    deadline_s: float = 2.5
    """Of resets that shall pass it once their targets are committed, and before they are verified."""

    def play(self, episodes: tuple[Episode, ...] = EPISODES) -> None:
        """All of them; those whose moment was over as the signal came, again. In the end all pauses are let go."""
        random, tries = Random(self.seed), Counter[Episode]()
        left = deque(episodes)
        while left:
            episode = left.popleft()
            tries[episode] += 1
            struck = self._episode(episode, random)
            self.struck.append(struck)
            self.say(f"{len(self.struck)}: {_told(struck)}")
            if not struck.is_aimed_well and tries[episode] < MOST_TRIES:
                left.append(episode)
                self._adapt_deadline(episode, struck.reset)
        for pause in self._standing():
            self._let_go(pause)
        for pause in self.pauses:
            self._wait_resumed(pause)

    def _adapt_deadline(self, episode: Episode, reset: str) -> None:
        """How soon a reset commits is up to the machine."""
        if episode.moment is Moment.ROLLING_BACK:
            phase = self.stage.resources.get_reset(reset)["status"]["phase"]
            self.deadline_s *= 0.8 if phase == ResetPhase.SUCCEEDED else 1.4

    def _episode(self, episode: Episode, random: Random) -> Struck:
        """In one piece: what follows what is all that there is to it."""
        stage, replicas = self.stage, self.stage.replicas
        leader = replicas.leader()
        replicas.wait_ready()
        if episode.pause is not PauseMoment.PAUSING:
            self._pause(PauseMoment.PAUSED)
        elif episode.moment in SHORT:
            self._pause(PauseMoment.PAUSING)
        reset = self._ask(episode)
        self._reach(reset)
        aimed = self.pauses[-1]
        if episode.pause is PauseMoment.PAUSING and episode.moment not in SHORT:
            aimed = self._pause(PauseMoment.PAUSING)
        elif episode.pause is PauseMoment.RESUMING:
            aimed = self._standing()[0]
            mark = stage.pauses.mark
            self._let_go(aimed)
            stage.pauses.wait(_in_phase(aimed.name, "Resuming"), f"{aimed.name} is Resuming", since=mark)

        t = time.time()
        if episode.fault is Fault.KILL:
            leader.process.kill()
            leader.is_over = True
        else:
            leader.process.freeze()
        hit, pause_hit, under_way = self._hit(reset), self._phase_of(aimed), self._under_way()
        if episode.moment is Moment.APPROVED:
            stage.resources.approve(reset.name)
        if episode.fault is Fault.KILL:
            replicas.fill()
        successor = replicas.leader(after=leader)
        woken = None
        if episode.fault is Fault.STOP:
            time.sleep(random.uniform(0, _AWAKE_BESIDE_S))
            woken = time.time()
            leader.process.thaw()
            self._ended(leader)
            replicas.fill()
        if episode.moment is Moment.AWAITING:
            stage.resources.approve(reset.name)
        stage.resources.wait_phase(reset.name, *FINAL, timeout_s=_OVER_S)
        over = time.time()
        self._settle(aimed)
        return Struck(
            *(episode, reset.name, reset.document, t, leader.name, successor.name, hit, pause_hit),
            *(under_way, woken, over),
        )

    def _ended(self, replica: Replica) -> None:
        code = replica.process.ended(60)
        replica.is_over = True
        if code != GAVE_UP:
            self.complaints.append(f"{replica.name} woke and ended with {code}, not with {GAVE_UP}")

    def _settle(self, aimed: AskedPause) -> None:
        """The pause of the episode arrives; the oldest ones end; and exactly what stands is held."""
        self._wait_resumed(aimed) if aimed.let_go is not None else self._wait_paused(aimed)
        for pause in self._standing()[:-STANDING]:
            self._let_go(pause)
            self._wait_resumed(pause)
        held = {key for key in self.stage.control.control.read().holds if is_a_pause(key.holder)}
        stands = {pause.hold for pause in self._standing()}
        self.complaints += [f"{hold_key(key)} is held, and its pause is over" for key in held - stands]
        self.complaints += [f"{hold_key(key)} is not held, and its pause stands" for key in stands - held]

    # --- resets -------------------------------------------------------------------------------------------------------

    def _ask(self, episode: Episode) -> AskedReset:
        number = len(self.resets)
        name, whose, moment = f"r{number}", episode.whose, episode.moment
        groups, of = self._groups(whose, number)
        to = {"offset": 10} if whose in (Whose.IDLE, Whose.FLEET) else {"shiftBy": -15}
        spec: dict[str, Any] = {"engine": "Direct", "drainTimeout": "20s"}
        if moment in (Moment.AWAITING, Moment.APPROVED):
            spec["approval"] = "Manual"
        if moment is Moment.ROLLING_BACK:
            spec["deadline"] = f"{round(1000 * self.deadline_s)}ms"
        if whose is Whose.FLEET:
            spec["failurePolicy"] = "All"
        t = time.time()
        body = self.stage.resources.reset(name, of, to, **spec)
        asked = AskedReset(name, body["metadata"]["uid"], t, whose, groups, moment)
        self.resets.append(asked)
        return asked

    def _groups(self, whose: Whose, number: int) -> tuple[tuple[str, ...], str | list[str]]:
        """The groups, which stand where they shall, and how a spec names them."""
        match whose:
            case Whose.IDLE:
                idle = f"idle-{number}"
                self.stage.idle_group(idle)
                return (idle,), idle
            case Whose.FLEET:
                crew = tuple(f"crew-{number}-{letter}" for letter in "abc")
                for group in crew:
                    self.stage.idle_group(group)
                return crew, [f"crew-{number}-*"]
            case _:
                topic = topic_of(whose)
                partitions = [(topic, number) for number in range(PARTITIONS)]
                self.stage.fleets[topic].wait_flowing(partitions, timeout=_SOON_S)
                return (topic,), topic

    def _reach(self, reset: AskedReset) -> None:
        """As soon as it is told that the reset is at its moment."""
        stage, moment = self.stage, reset.moment
        what = f"reset {reset.name} is at {moment}"
        if moment in (Moment.AWAITING, Moment.APPROVED):
            stage.resets.wait(_in_phase(reset.name, "AwaitingApproval"), what, timeout_s=_SOON_S)
        elif moment is Moment.COMMITTING:
            stage.marks.wait(reset.groups[0], reset.run_uid, _SOON_S)
        else:
            stage.runs.wait(
                lambda version: version.name == reset.document and _moment_of(version.body) in (moment, OVER),
                what,
                timeout_s=_SOON_S,
            )

    def _hit(self, reset: AskedReset) -> str:
        """By its document as it was left, and by what Kafka has of it."""
        try:
            found = self.stage.resources.core.read_namespaced_config_map(reset.document, self.stage.resources.namespace)
        except kube.exceptions.NotFoundException:
            return "Pending"
        moment = _moment_of({"data": found.data})
        if moment == Moment.AWAITING:
            return reset.moment if reset.moment is Moment.APPROVED else moment
        is_mid_round = moment in (Moment.PAUSING, Moment.APPLYING)
        # Where nobody is held, the transaction is all that there is to applying.
        if is_mid_round and reset.moment is Moment.COMMITTING and self._has_begun(reset):
            return Moment.COMMITTING
        return moment

    def _has_begun(self, reset: AskedReset) -> bool:
        return any(self.stage.marks.began(group, reset.run_uid) for group in reset.groups)

    # --- pauses -------------------------------------------------------------------------------------------------------

    def _pause(self, until_it_is: PauseMoment) -> AskedPause:
        number = len(self.pauses)
        name, stage = f"p{number}", self.stage
        mark = stage.pauses.mark
        body = stage.resources.pause(name, PAUSED, {"topic": PAUSED, "partitions": [number]}, drainTimeout="60s")
        connection = stage.resources.get_connection("kafka")["metadata"]["uid"]
        hold = HoldKey(PAUSED, PAUSED, number, holder(connection, body["metadata"]["uid"]))
        asked = AskedPause(name, hold, deleted=number % 2 == 0)
        self.pauses.append(asked)
        stage.pauses.wait(_in_phase(name, until_it_is), f"{name} is {until_it_is}", since=mark, timeout_s=_SOON_S)
        return asked

    def _standing(self) -> list[AskedPause]:
        return [pause for pause in self.pauses if pause.let_go is None]

    def _let_go(self, pause: AskedPause) -> None:
        pause.let_go = time.time()
        if pause.deleted:
            self.stage.resources.delete_pause(pause.name)
        else:
            self.stage.resources.patch_pause(pause.name, suspend=True)

    def _wait_paused(self, pause: AskedPause) -> None:
        self.stage.resources.wait_pause(pause.name, "Paused", "1/1", timeout_s=_SOON_S)

    def _wait_resumed(self, pause: AskedPause) -> None:
        def is_over() -> bool:
            body = self.stage.resources.get("consumergrouppauses", pause.name)
            return body is None if pause.deleted else body is not None and body["status"]["phase"] == "Resumed"

        until(is_over, f"{pause.name} is over", timeout_s=_SOON_S)

    def _phase_of(self, pause: AskedPause) -> str:
        versions = self.stage.pauses.versions(pause.name)
        return versions[-1].phase if versions and not versions[-1].gone else "(gone)"

    def _under_way(self) -> Counter[str]:
        """How many resets and pauses were in which phase, by their statuses."""
        resets = [v.phase for v in self.stage.resets.newest().values() if v.phase not in FINAL]
        pauses = [v.phase for v in self.stage.pauses.newest().values() if v.phase != "Resumed"]
        return Counter([*(f"reset {phase}" for phase in resets), *(f"pause {phase}" for phase in pauses)])


def _in_phase(name: str, phase: str) -> Callable[[Version], bool]:
    return lambda version: version.name == name and version.phase == phase


def _moment_of(config_map: Mapping[str, Any]) -> str:
    """What a run is at, by its document."""
    data = config_map.get("data") or {}
    if "result.json" in data:
        return OVER
    lines = data.get("journal.jsonl", "").splitlines()
    if not lines:
        return Moment.PLANNING
    last = json.loads(lines[-1])
    return Moment.ROLLING_BACK if last.get("putting_back") else str(last["phase"])


def _told(struck: Struck) -> str:
    episode = struck.episode
    missed = "" if struck.is_aimed_well else f" (aimed at {episode.moment})"
    return (
        f"{episode.fault} in {struck.hit}{missed} of {episode.whose}, pause {struck.pause_hit}: "
        f"{struck.leader} → {struck.successor}, the reset was over after {struck.over - struck.t:.1f} s"
    )

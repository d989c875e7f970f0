"""The page of ``tidegate ui``, served from memory: for its tests, for a browser, and to measure it.

``python -m support.served_ui [GROUPS]`` (with ``PYTHONPATH=operator:tests``) serves it until it is interrupted.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self, cast

from aiohttp import web

from support.fake_kube import FakeKube
from support.fake_watches import FakeWatches
from support.planned_runs import a_fleets_run, a_run, some_evidence
from tidegate.cli.errors import CommandFailed
from tidegate.cli.ui.actions import Client
from tidegate.cli.ui.board import Board
from tidegate.cli.ui.following import Following
from tidegate.cli.ui.guard import Guard
from tidegate.cli.ui.kafka import ClosedEye, Eye
from tidegate.cli.ui.rows import WATCHED
from tidegate.cli.ui.server import Page, Parts, runner_of
from tidegate.clock import SystemClock
from tidegate.incident.seen import KafkaSeen
from tidegate.kafka.model import Group, GroupState, GroupType, ListedGroup, LogBounds, Member
from tidegate.kube.ports import CONNECTIONS, PAUSES, POLICIES, RESETS, Kind, Object, name_of
from tidegate.reset.binding import digest_of
from tidegate.reset.model.progress import Progress
from tidegate.reset.store import Run
from tidegate.resources.reset import ResetPhase
from tidegate.resources.timestamps import format_timestamp

TOKEN: Final = "the-token-of-this-test"
NOW: Final = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
CONNECTION: Final = {"connectionRef": {"name": "prod"}}


class PersonsKube(FakeKube):
    """With what a person does: ask who they are, and create objects of their own."""

    def __init__(self, name: str = "ada@example.org") -> None:
        super().__init__()
        self.own = name

    def own_name(self) -> str:
        return self.own

    def create(self, kind: Kind, *arguments: Any, **_options: bool) -> Object:  # type: ignore[override]
        """As a person with one body, or as tests create."""
        if len(arguments) > 1:
            return super().create(kind, *arguments)
        (body,) = arguments
        metadata = body["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}x7k2p"
        return super().create(kind, metadata["namespace"], name, body["spec"], format_timestamp(NOW))


class StoredInMemory:
    """Implements `tidegate.cli.ui.actions.Runs`."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str], Run] = {}

    def run(self, namespace: str, reset: Object, group_id: str | None) -> Run:
        found = self.runs.get((namespace, name_of(reset)))
        if found is None:
            raise CommandFailed(f"OffsetReset {name_of(reset)} has not begun, or its plan is no longer stored")
        if group_id is not None and found.fleet is not None:
            return a_run()  # of each of its groups
        return found


class SeenByTests:
    """Implements `tidegate.cli.ui.kafka.Eye`: what is told to it."""

    why = ""

    def __init__(self, connection: tuple[str, str], groups: Sequence[ListedGroup] = ()) -> None:
        self.connection: tuple[str, str] | None = connection
        self.listing = list(groups)
        self.seen: dict[str, KafkaSeen] = {}

    def group(self, group_id: str) -> KafkaSeen:
        return self.seen.get(group_id, KafkaSeen("__tidegate", cluster_id="c"))

    def groups(self) -> Sequence[ListedGroup]:
        return self.listing

    def close(self) -> None:
        pass


def condition(kind: str, status: str, reason: str, message: str, at: datetime = NOW) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_timestamp(at),
    }


class Scene:
    """One page and what is behind it. Enter it to have it served by a thread of its own."""

    def __init__(self, eye: Eye | None = None, *, seconds: float = 0.3) -> None:
        self.kube = PersonsKube()
        self.runs = StoredInMemory()
        self.eye = eye or ClosedEye()
        self.board = Board(WATCHED)
        self.watches = FakeWatches(self.kube, seconds=seconds)
        self.executor, self.looking = ThreadPoolExecutor(4), ThreadPoolExecutor(1)
        self._following = Following(WATCHED, self.watches, self.board)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ready = threading.Event()
        self._over: asyncio.Event | None = None
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    @property
    def address(self) -> str:
        """With the token, as a person gets it."""
        return f"{self.url}/#token={TOKEN}"

    def parts(self) -> Parts:
        about = {"you": self.kube.own, "where": "all namespaces", "server": "https://api.example.org:6443"}
        kube, clock = cast("Client", self.kube), SystemClock()
        return Parts(self.board, kube, self.runs, self.eye, clock, self.executor, self.looking, about)

    def application(self, host: str | None = None) -> web.Application:
        return Page(self.parts()).application(Guard(host or self.host, TOKEN))

    def __enter__(self) -> Self:
        self._following.start()
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.watches.over.set()
        self._following.stop()
        if self._over is not None:
            self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        self.executor.shutdown(wait=False)
        self.looking.shutdown(wait=False)

    def _serve(self) -> None:
        self.loop.run_until_complete(self._served())

    async def _served(self) -> None:
        self._over = asyncio.Event()
        runner = runner_of(self.application())
        await runner.setup()
        await web.SockSite(runner, self._socket).start()
        self._ready.set()
        await self._over.wait()
        await runner.cleanup()

    # --- what is on it ------------------------------------------------------------------------------------------------

    def put(self, kind: Kind, namespace: str, name: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> Object:
        made = self.kube.create(kind, namespace, name, spec, format_timestamp(NOW - timedelta(hours=5)))
        return self.kube.replace_status(kind, made, status)

    def status(self, kind: Kind, namespace: str, name: str, status: Mapping[str, Any]) -> None:
        self.kube.replace_status(kind, self.kube.get(kind, namespace, name), status)

    def reset(self, name: str, phase: ResetPhase, message: str, group: str = "payments-eu", **status: Any) -> Object:
        run = StoredRun.of(phase)
        self.runs.runs["shop", name] = run
        spec = {**CONNECTION, "group": group, "to": {"timestamp": "2026-11-20T14:00:00Z"}, "approval": "Manual"}
        truth = {ResetPhase.SUCCEEDED: "True", ResetPhase.FAILED: "False"}.get(phase, "Unknown")
        return self.put(
            RESETS,
            "shop",
            name,
            spec,
            {
                "phase": phase.value,
                "runUid": "u",
                "digest": run.digest,
                "requester": "grace@example.org",
                "startedAt": format_timestamp(NOW - timedelta(minutes=20)),
                "plan": {"partitions": 6, "moved": 5, "recordsReplayed": 1_904_880, "recordsSkipped": 6_500},
                "conditions": [condition("Complete", truth, phase.value, message)],
                **status,
            },
        )


class StoredRun:
    """A run as it would be stored in a phase."""

    @staticmethod
    def of(phase: ResetPhase) -> Run:
        run = a_run(evidence=some_evidence())
        at = run.journal[-1].at
        for n, reached in enumerate((ResetPhase.PAUSING, ResetPhase.APPLYING, ResetPhase.VERIFYING)):
            if list(ResetPhase).index(phase) < list(ResetPhase).index(reached):
                break
            line = Progress(reached, at + timedelta(seconds=40 + 2 * n), 1, round=1)
            run = replace(run, journal=(*run.journal, line))
        return replace(run, digest=digest_of(run))


def some_kafka(groups: int) -> SeenByTests:
    """A cluster with so many groups, of which one is being reset."""
    listing = [ListedGroup(f"team-{n % 40:02}.service-{n:04}", "consumer", "classic", "Stable") for n in range(groups)]
    eye = SeenByTests(("shop", "prod"), [*listing, ListedGroup("payments-eu", "consumer", "classic", "Stable")])
    run = a_run()
    assert run.plan is not None
    offsets = {p.topic_partition: p.target + 1_000 * n for n, p in enumerate(run.plan.partitions)}
    members = tuple(
        Member(
            f"payments-{n}-6f1c",
            f"payments-{n}",
            f"/10.0.0.{n}",
            assignment=frozenset(list(offsets)[n * 2 : n * 2 + 2]),
        )
        for n in range(3)
    )
    eye.seen["payments-eu"] = KafkaSeen(
        "__tidegate",
        cluster_id="c-1",
        group=a_group("payments-eu", members),
        committed=offsets,
        bounds={p.topic_partition: LogBounds(p.earliest, p.latest) for p in run.plan.partitions},
        pending=frozenset(),
    )
    return eye


def a_group(group_id: str, members: tuple[Member, ...]) -> Group:
    return Group(group_id, GroupState.STABLE, GroupType.CLASSIC, "range", members)


def furnish(scene: Scene, groups: int) -> None:
    """A connection, policies for so many groups, and a few of each of the others."""
    scene.put(
        CONNECTIONS,
        "shop",
        "prod",
        {"bootstrapServers": "kafka:9092"},
        {"clusterId": "c-1", "brokers": 3, "conditions": [condition("Ready", "True", "Connected", "3 brokers answer")]},
    )
    scene.put(
        CONNECTIONS,
        "bank",
        "ledger",
        {"bootstrapServers": "ledger:9092"},
        {"conditions": [condition("Ready", "False", "Unreachable", "no broker of ledger:9092 answers in 10 s")]},
    )
    for n in range(groups):
        name, group = f"keep-{n:04}", f"team-{n % 40:02}.service-{n:04}"
        scene.put(
            POLICIES,
            f"team-{n % 40:02}",
            name,
            {"connectionRef": {"name": "prod", "namespace": "shop"}, "group": group, "retention": {"guard": True}},
            {"conditions": [condition("Ready", "True", "Ready", "2 of 2 offsets are kept")]},
        )
    scene.reset("replay-2026-11-20", ResetPhase.AWAITING_APPROVAL, "5 of 6 partitions move; waits for an approval")
    scene.reset("replay-applying", ResetPhase.APPLYING, "Commits 5 offsets in one transaction", way="Gated")
    ended = {"finishedAt": format_timestamp(NOW - timedelta(hours=1)), "way": "Handover"}
    scene.reset("replay-done", ResetPhase.SUCCEEDED, "5 partitions were reset; 5 were seen to read on", **ended)
    fleet = scene.runs.runs["shop", "replay-fleet"] = a_fleets_run()
    waits = condition("Complete", "Unknown", "AwaitingApproval", "3 of 4 groups have a plan; waits for an approval")
    scene.put(
        RESETS,
        "shop",
        "replay-fleet",
        {**CONNECTION, "groups": ["payments-*"], "to": {"timestamp": "2026-11-20T14:00:00Z"}, "approval": "Manual"},
        {"phase": "AwaitingApproval", "digest": fleet.digest, "conditions": [waits]},
    )
    scene.reset("replay-failed", ResetPhase.FAILED, "An owner wrote its old offset 3 times: put back", **ended)
    scene.put(
        PAUSES,
        "shop",
        "inc-4711",
        {**CONNECTION, "group": "payments-eu", "reason": "INC-4711 poison record"},
        {
            "phase": "Paused",
            "paused": "2/2",
            "observedGeneration": 1,
            "partitions": [
                {
                    "topic": "orders",
                    "partition": n,
                    "phase": "Paused",
                    "offset": 41_230,
                    "lag": 17,
                    "member": "payments-1",
                }
                for n in range(2)
            ],
            "conditions": [condition("Paused", "True", "Paused", "2 of 2 partitions are paused")],
        },
    )


def main() -> None:
    groups = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    scene = Scene(some_kafka(groups), seconds=30)
    furnish(scene, groups)
    with scene, suppress(KeyboardInterrupt):
        print(scene.address, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()

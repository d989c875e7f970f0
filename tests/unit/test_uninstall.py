"""Uninstalling that fails in its midst; the whole of it is in `tests/apiserver/test_uninstall.py`."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from support.fake_kube import FakeKube
from support.live import live_of
from tidegate import uninstall as leaving
from tidegate.connection.live import LiveConnections
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import CONNECTIONS, PAUSES, EventType, Kind, KubeEvent, KubeUnavailable, Object
from tidegate.kube.uninstall_client import LeavingClient
from tidegate.service.settings import Settings
from tidegate.uninstall import Leave, _Client, _let_go

FINALIZER = "tidegate.io/holds"
SINCE = "2026-01-01T00:00:00Z"
SPEC = {"connectionRef": {"name": "prod"}, "group": "g"}


class Loop:
    """Of resources that are let go of by nobody, since Kafka does not answer."""

    def notice(self, _event: str | None, _body: Object) -> None:
        pass

    async def stop(self) -> None:
        pass


class Failing(FakeKube):
    """An API server that goes away once the first finalizer is off."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: dict[str, str] = {}
        self.taken = 0

    def set_finalizers(self, kind: Kind, body: Object, finalizers: Any) -> Object:
        if self.taken:
            raise KubeUnavailable("nobody answers")
        self.taken += 1
        return super().set_finalizers(kind, body, finalizers)

    @staticmethod
    def away(*_: Any) -> Object:
        raise KubeUnavailable("nobody answers")


def test_what_is_left_is_said_also_where_the_api_server_goes_away_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next attempt finds no finalizer of ours on the first one, and nothing to be said about it."""
    kube = Failing()
    for name in ("one", "two"):
        body = kube.create(PAUSES, "ns", name, SPEC, "2026-01-01T00:00:00Z")
        FakeKube.set_finalizers(kube, PAUSES, body, [FINALIZER])
    operator: Any = SimpleNamespace(
        pauses=Loop(), resets=Loop(), connections=Loop(), replaced=asyncio.Event(), why_replaced=""
    )
    client: Any = kube

    with caplog.at_level(logging.ERROR), pytest.raises(KubeUnavailable):
        asyncio.run(_let_go(operator, client, 0.0))

    said = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[1] for line in said[:2]] == [
        " ConsumerGroupPause ns/one",
        " ConsumerGroupPause ns/two",
    ]
    assert said[2].startswith("2 resource(s) could not be let go of")


class Dying:
    """The API server behind a client on its way out; it goes away as soon as all finalizers are off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kube = FakeKube()
        self.client = object.__new__(_Client)
        self.client.warnings = {}
        self.client._since = "2026-01-01T00:00:00Z"
        for name in ("list", "get", "replace_status", "set_finalizers"):
            monkeypatch.setattr(KubeClient, name, lambda _self, *given, name=name: getattr(self, name)(*given))

    def list(self, kind: Kind) -> Any:
        return self.kube.list(kind)

    def get(self, *_: Any) -> Object:
        raise KubeUnavailable("nobody answers")

    def replace_status(self, *given: Any) -> Object:
        return self.kube.replace_status(*given)

    def set_finalizers(self, *given: Any) -> Object:
        return self.kube.set_finalizers(*given)


class LettingGo(Loop):
    """As the reconciler of pauses ends: without its finalizer nobody looks at a pause again."""

    def __init__(self, client: _Client, left: str = "") -> None:
        self.client, self.left = client, left

    def notice(self, _event: str | None, body: Object) -> None:
        if self.left and body["kind"] == PAUSES.kind:
            self.client.warnings[f"{PAUSES.kind} ns/{body['metadata']['name']}"] = self.left
        self.client.set_finalizers(PAUSES, body, [])


@pytest.mark.parametrize("left", ["", "connector c is left as it is"])
def test_a_pause_that_was_let_go_of_says_so_also_where_this_process_dies_right_then(
    left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt looks only at those with a finalizer; the status would say for ever that it is being deleted."""
    dying = Dying(monkeypatch)
    body = dying.kube.create(PAUSES, "ns", "p", SPEC, "2026-01-01T00:00:00Z")
    body = dying.kube.set_finalizers(PAUSES, body, [FINALIZER])
    paused = {"type": "Paused", "status": "True", "reason": "Paused", "message": "all", "lastTransitionTime": SINCE}
    dying.kube.replace_status(PAUSES, body, {"phase": "Paused", "observedGeneration": 1, "conditions": [paused]})
    loop = LettingGo(dying.client, left)
    operator: Any = SimpleNamespace(
        pauses=loop, resets=loop, connections=Loop(), replaced=asyncio.Event(), why_replaced=""
    )

    with pytest.raises(KubeUnavailable):
        asyncio.run(_let_go(operator, dying.client, 60.0))

    said = dying.kube.get(PAUSES, "ns", "p")
    assert not said["metadata"].get("finalizers")
    assert "deletionTimestamp" not in said["metadata"]
    conditions = {each["type"]: each for each in said["status"]["conditions"]}
    assert conditions["Stalled"]["reason"] == "Uninstalled"
    assert (said["status"]["phase"], conditions["Paused"]["status"]) == (
        ("Degraded", "Unknown") if left else ("Resumed", "False")
    )
    assert left in conditions["Stalled"]["message"]


def test_what_an_attempt_has_left_is_said_also_where_the_next_one_takes_the_finalizer_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one died in between, and what was left is in none of its records any more."""
    dying = Dying(monkeypatch)
    body = dying.kube.create(PAUSES, "ns", "p", SPEC, "2026-01-01T00:00:00Z")
    body = dying.kube.set_finalizers(PAUSES, body, [FINALIZER])
    monkeypatch.setattr(dying, "set_finalizers", Failing.away)
    with pytest.raises(KubeUnavailable):
        LettingGo(dying.client, "connector c is left as it is").notice(None, body)
    monkeypatch.setattr(dying, "set_finalizers", dying.kube.set_finalizers)
    dying.client.warnings = {}

    LettingGo(dying.client).notice(None, dying.kube.get(PAUSES, "ns", "p"))

    said = dying.kube.get(PAUSES, "ns", "p")
    assert not said["metadata"].get("finalizers")
    assert said["status"]["phase"] == "Degraded"


@pytest.mark.parametrize(
    ("phases", "count"), [(["Running", "Failed"], 1), (["Failed", "Succeeded"], 0), (["Pending", "Unknown", ""], 3)]
)
def test_a_pod_that_has_ended_is_not_waited_for(phases: list[str], count: int) -> None:
    """One that was evicted, or whose node was shut down, stays in the listing, and no ReplicaSet removes it."""
    pods = [{"metadata": {"name": f"p{n}"}, "status": {"phase": phase}} for n, phase in enumerate(phases)]
    client = object.__new__(LeavingClient)
    core: Any = SimpleNamespace(list=lambda *_, **__: {"items": pods})
    client._core = core

    assert client.pods("tidegate-system", "app=tidegate") == count


@pytest.mark.parametrize("reason", ["HoldsLeft", "ReplicasLeft", "ConnectorLeft", "LeaderLeft", "Abandoned"])
def test_whatever_a_deletion_could_not_undo_is_left(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeavingClient, "record", lambda *_: None)
    client = object.__new__(_Client)
    client.warnings = {}
    pause = {"kind": "ConsumerGroupPause", "metadata": {"namespace": "ns", "name": "p"}}

    client.record(pause, KubeEvent(EventType.WARNING, reason, "it stays as it is", "key"))

    assert client.warnings == {"ConsumerGroupPause ns/p": "it stays as it is"}


class Opening(Loop):
    """Of connections: each is open a moment after it was told of, unless its cluster does not answer."""

    def __init__(self, live: LiveConnections, *, answers: bool) -> None:
        self.live, self.answers = live, answers

    def notice(self, _event: str | None, body: Object) -> None:
        if self.answers:
            opened = live_of(FakeKafka(FakeClock()), body["metadata"]["uid"])
            asyncio.get_running_loop().call_later(0.1, self.live.put, opened)


@pytest.mark.parametrize("answers", [True, False])
def test_holds_of_what_is_gone_are_looked_for_also_where_no_resource_holds_anything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, answers: bool
) -> None:
    """Such as those of a pause that was deleted while Kafka did not answer, or of an operator that was killed as it
    sent owners back: nobody else would release them."""
    kube = Failing()
    kube.create(CONNECTIONS, "ns", "kafka", {"bootstrapServers": "127.0.0.1:9092"}, SINCE)
    live, swept = LiveConnections(), list[str]()

    async def sweep(settle_s: float) -> None:
        assert settle_s == 0
        swept.extend(one.name for one in live)

    async def stop() -> None: ...

    operator: Any = SimpleNamespace(
        pauses=Loop(),
        resets=Loop(),
        connections=Opening(live, answers=answers),
        live=live,
        servers=SimpleNamespace(start=lambda: None),
        sweeper=SimpleNamespace(sweep=sweep),
        stop=stop,
        replaced=asyncio.Event(),
        why_replaced="",
    )
    monkeypatch.setattr(leaving, "_Client", lambda *_: kube)
    monkeypatch.setattr(leaving, "build", lambda _settings, open_kube: (open_kube(None), operator)[1])
    settings = Settings.from_environment({"TIDEGATE_DELETION_LIMIT_S": "1"})

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(leaving.uninstall(settings, Leave()))

    assert swept == (["kafka"] if answers else [])
    assert ("KafkaConnection ns/kafka" in caplog.text) is not answers

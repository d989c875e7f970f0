"""Uninstalling that fails in its midst; the whole of it is in `tests/apiserver/test_uninstall.py`."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_kube import FakeKube
from tidegate.kube.ports import PAUSES, EventType, Kind, KubeEvent, KubeUnavailable, Object
from tidegate.kube.uninstall_client import LeavingClient
from tidegate.uninstall import _Client, _let_go

FINALIZER = "tidegate.io/holds"
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


@pytest.mark.parametrize("reason", ["HoldsLeft", "ReplicasLeft", "ConnectorLeft", "LeaderLeft", "Abandoned"])
def test_whatever_a_deletion_could_not_undo_is_left(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeavingClient, "record", lambda *_: None)
    client = object.__new__(_Client)
    client.warnings = {}
    pause = {"kind": "ConsumerGroupPause", "metadata": {"namespace": "ns", "name": "p"}}

    client.record(pause, KubeEvent(EventType.WARNING, reason, "it stays as it is", "key"))

    assert client.warnings == {"ConsumerGroupPause ns/p": "it stays as it is"}

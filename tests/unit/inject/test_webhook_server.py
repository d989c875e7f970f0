"""The webhook's server over real TLS: what it answers, and whose certificate it shows."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from support.served_webhook import Served, review, serving
from tidegate.inject.bodies import Limits
from tidegate.inject.callers import Callers
from tidegate.inject.certificates import Certificates, renewed
from tidegate.inject.server import PATH, WebhookServer
from tidegate.kube.ports import KubeEvent, KubeUnavailable, NotFound, Object
from tidegate.service.settings import Address


class Told(Served):
    """One that begins without a certificate, and whose Events can't be written."""

    def __init__(self, folder: Path, limits: Limits | None = None, callers: Callers | None = None) -> None:
        super().__init__(folder, limits, callers)
        for path in folder.iterdir():
            path.unlink()
        self.reasons: list[tuple[str, str]] = []
        self.done = threading.Event()

    def record(self, body: Object, happening: KubeEvent) -> None:
        super().record(body, happening)
        self.reasons.append((str(body["kind"]), happening.reason))
        if len(self.reasons) == 2:
            self.done.set()
        raise NotFound("an Event that can't be written is no reason to hold up anything")

    def is_there(self, namespace: str, controller: Mapping[str, str]) -> bool:
        return namespace == "ns" and controller["name"].startswith("payments")

    def admitted(self) -> dict[str, float]:
        """How many pods came by, by outcome."""
        [family] = (f for f in self.registry.collect() if f.name == "tidegate_webhook_admissions")
        return {s.labels["outcome"]: s.value for s in family.samples if s.name.endswith("_total")}

    def refused(self) -> dict[str, float]:
        """How many requests were refused, by HTTP status, without those of which there were none."""
        [family] = (f for f in self.registry.collect() if f.name == "tidegate_webhook_refused_requests")
        return {s.labels["status"]: s.value for s in family.samples if s.name.endswith("_total") and s.value}

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def answered(self, trusted: Certificates, body: bytes, path: str = PATH) -> tuple[int, Any]:
        """Over a connection of its own. Raises ``aiohttp.ClientError``."""
        context = ssl.create_default_context(cadata=trusted.bundle.decode())
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}{path}", data=body, ssl=context) as answer,
        ):
            text = await answer.text()
            return answer.status, json.loads(text) if answer.status == 200 else text


def own(days_ago: int = 0) -> Certificates:
    return renewed(None, ("127.0.0.1",), datetime.now(UTC) - timedelta(days=days_ago))


def playing(folder: Path, play: Callable[[Told], Awaitable[None]]) -> None:
    serving(folder, play, kind=Told)


def test_a_review_is_answered_and_anything_else_refused(tmp_path: Path) -> None:
    certificates = own()

    async def play(served: Told) -> None:
        served.mount(certificates)
        status, answered = await served.answered(certificates, json.dumps(review()).encode())
        assert status == 200
        assert json.loads(base64.b64decode(answered["response"]["patch"]))
        cases: Mapping[tuple[bytes, str], int] = {
            (b"garbage", PATH): 400,
            (b"\xff\xfe", PATH): 400,
            (b"{}", PATH): 400,
            (b"x" * (1024 * 1024 + 1), PATH): 413,
            (json.dumps(review()).encode(), "/other"): 404,
        }
        assert served.refused() == {}
        for (body, path), wanted in cases.items():
            assert (await served.answered(certificates, body, path))[0] == wanted
        # None of them is a pod that came by.
        assert served.refused() == {"400": 3, "404": 1, "413": 1}
        assert sum(served.admitted().values()) == 1

    playing(tmp_path, play)


def test_a_refusal_is_answered_at_once_and_told_once_though_telling_fails(tmp_path: Path) -> None:
    certificates = own()

    async def play(served: Told) -> None:
        served.mount(certificates)
        for _ in range(3):
            status, answered = await served.answered(certificates, json.dumps(review(os={"name": "windows"})).encode())
            assert status == 200
            assert answered["response"]["allowed"] is True
        assert await asyncio.to_thread(served.done.wait, 10)
        assert served.reasons == [("ReplicaSet", "InjectionRefused"), ("OffsetResetPolicy", "InjectionRefused")]

    playing(tmp_path, play)


def test_pods_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    """One that can't be read is created as it is, which is for the API server to refuse, and it is told."""
    certificates = own()
    other = review()
    other["request"]["object"]["metadata"]["labels"] = {}
    foreign = review()
    foreign["request"]["namespace"] = "elsewhere"

    async def play(served: Told) -> None:
        served.mount(certificates)
        assert set(served.admitted().values()) == {0}
        unreadable = review(containers="none")
        for body in (review(), other, foreign, review(os={"name": "windows"}), unreadable, unreadable):
            status, answered = await served.answered(certificates, json.dumps(body).encode())
            assert (status, answered["response"]["allowed"]) == (200, True)

        await asyncio.gather(*served.server._notices)
        reasons = {message.partition(":")[0] for *_, message in served.events}
        assert reasons == {"WindowsNotSupported", "PodUnreadable"}
        [warning] = answered["response"]["warnings"]
        assert "the pod can't be read" in warning
        assert "patch" not in answered["response"]
        assert served.admitted() == {
            "Injected": 1,
            "Unchanged": 0,
            "NotSelected": 1,
            "Ignored": 1,
            "Refused": 1,
            "Failed": 2,
        }

    playing(tmp_path, play)


def test_of_many_refusals_only_so_many_are_told(tmp_path: Path) -> None:
    certificates = own()

    async def play(served: Told) -> None:
        served.mount(certificates)
        context = ssl.create_default_context(cadata=certificates.bundle.decode())
        async with aiohttp.ClientSession() as session:
            for number in range(70):
                body = review(os={"name": "windows"})
                [owner] = body["request"]["object"]["metadata"]["ownerReferences"]
                owner |= {"name": f"payments-{number}", "uid": f"rs-{number}"}
                async with session.post(f"{served.url}{PATH}", data=json.dumps(body), ssl=context) as answer:
                    assert answer.status == 200
        await asyncio.gather(*served.server._notices)
        assert len({name for _, name, _ in served.events}) == 61  # sixty ReplicaSets, and their policy

    playing(tmp_path, play)


def test_one_refusal_that_comes_by_the_hundred_keeps_no_other_from_being_told(tmp_path: Path) -> None:
    async def play(served: Served) -> None:
        caller = await served.caller()
        for _ in range(70):
            caller.post(json.dumps(review(os={"name": "windows"})).encode())
            await caller.answered()
            await served.told()
        caller.close()
        served.controllers.add(("ns", "apps/v1", "ReplicaSet", "orders", "other"))
        other = review(os={"name": "windows"})
        [owner] = other["request"]["object"]["metadata"]["ownerReferences"]
        other["request"]["object"]["metadata"]["ownerReferences"] = [{**owner, "name": "orders", "uid": "other"}]
        await served.post(other)
        await served.told()
        assert {name for kind, name, _ in served.events if kind == "ReplicaSet"} == {"payments", "orders"}

    serving(tmp_path, play)


def test_a_refusal_whose_event_got_no_answer_is_told_with_the_next_pod(tmp_path: Path) -> None:
    class Silent(Served):
        def record(self, body: Object, happening: KubeEvent) -> None:
            super().record(body, happening)
            if len(self.events) == 2:
                raise KubeUnavailable("record an Event: the API server did not answer in time")

    async def play(served: Silent) -> None:
        for _ in range(3):
            await served.post(review(os={"name": "windows"}))
            await served.told()
        # An Event that was recorded is recorded again under the same name.
        assert [kind for kind, *_ in served.events] == ["ReplicaSet", "OffsetResetPolicy"] * 2

    serving(tmp_path, play, kind=Silent)


def test_each_connection_is_shown_the_newest_usable_certificate(tmp_path: Path) -> None:
    first, second = own(1), own()
    body = json.dumps(review()).encode()

    async def play(served: Told) -> None:
        with pytest.raises(aiohttp.ClientError):
            await served.answered(first, body)
        served.mount(first)
        assert (await served.answered(first, body))[0] == 200
        (tmp_path / "tls.crt").write_text("garbage")
        assert (await served.answered(first, body))[0] == 200
        context = ssl.create_default_context(cadata=first.bundle.decode())
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{served.url}{PATH}", data=body, ssl=context) as answer:
                assert answer.status == 200
            served.mount(second)
            assert (await served.answered(second, body))[0] == 200
            with pytest.raises(aiohttp.ClientError):
                await served.answered(first, body)
            # A connection that was open goes on.
            async with session.post(f"{served.url}{PATH}", data=body, ssl=context) as answer:
                assert answer.status == 200

    playing(tmp_path, play)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    served = Told(tmp_path)
    port = int(served.url.rpartition(":")[2])
    parts = served.server._parts

    with pytest.raises(OSError, match=f"TIDEGATE_WEBHOOK_ADDRESS: can't listen on 127.0.0.1:{port}"):
        WebhookServer(Address("127.0.0.1", port), tmp_path, parts).open()
    asyncio.run(served.server.stop())

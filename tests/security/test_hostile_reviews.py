"""Whoever reaches the webhook's port keeps it from nobody, learns nothing of others, and has nothing written."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import logging
import ssl
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from devstack.certificates import CertificateAuthority
from support.alone import alone
from support.served_webhook import OWNER, Caller, Served, review, serving
from tidegate.inject import server
from tidegate.inject.admission import BadReview
from tidegate.inject.bodies import Limits, read_review
from tidegate.inject.callers import Callers
from tidegate.inject.listener import Times
from tidegate.inject.patch import TOO_MANY

_MIB = 1024 * 1024

HOSTILE = {
    "deep": b"[" * _MIB,
    "keys": b"{" + b",".join(b'"%x":0' % number for number in range(100_000)) + b"}",
    "objects": b"[" + b'{"a":0},' * 130_000 + b"0]",
    "long number": b"[" + b"1" * 5000 + b"]",
    "no text": b'"\xff\xfe"',
    "nothing": b"",
}


# --- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_refused_as_the_callers_own_mistake(body: bytes) -> None:
    with pytest.raises(BadReview):
        read_review(body)


@pytest.mark.parametrize(
    "request_",
    [
        {"uid": "u", "resource": "pods"},
        {"uid": "u", "resource": [1]},
        {"uid": {"not": "a text"}},
        {"uid": "u", "namespace": ["ns"], "operation": "CREATE", "resource": {"resource": "pods"}, "object": {}},
        {**review()["request"], "object": {"metadata": {"labels": 7}, "spec": None}},
        {**review()["request"], "object": {"metadata": {"ownerReferences": 3, "labels": {"app": "payments"}}}},
        review({"annotations": {"tidegate.io/inject": "\ud800\x1b[2J"}})["request"],
        review({"annotations": {"tidegate.io/containers": "\ud800" * 1000}})["request"],
    ],
)
def test_whatever_a_review_has_in_it_is_answered(tmp_path: Path, request_: dict[str, Any]) -> None:
    async def play(served: Served) -> None:
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request_}
        status, answer = await served.post(body)
        assert status == 200 or (status == 400 and b"AdmissionReview" in answer), answer
        await served.told()
        assert not any(set(message) & {"\ud800", "\x1b"} for *_, message in served.events)

    serving(tmp_path, play)


def test_bodies_above_a_mib_are_refused_by_what_is_said_and_by_what_comes(tmp_path: Path) -> None:
    async def play(served: Served) -> None:
        said, chunked = await served.caller(), await served.caller()
        # Nothing of it is sent: it is refused by what its header says.
        said.post(b"", "/mutate/pods", f"Content-Length: {_MIB + 1}")
        assert (await said.answered())[0] == 413
        chunked.post(b"", "/mutate/pods", "Transfer-Encoding: chunked")
        for _ in range(17):
            chunked.send(b"10000\r\n" + b" " * 65536 + b"\r\n")
        assert (await chunked.answered())[0] == 413

        packed = gzip.compress(b" " * (64 * _MIB))
        bomb = await served.caller()
        bomb.post(packed, "/mutate/pods", f"Content-Length: {len(packed)}", "Content-Encoding: gzip")
        assert (await bomb.answered())[0] == 400

    serving(tmp_path, play)


def test_a_hostile_mib_does_not_stall_whatever_else_the_operator_does(tmp_path: Path) -> None:
    body = HOSTILE["keys"]

    async def longest_stall(served: Served) -> float:
        """Seconds of this process's time, in whichever thread: what else the machine is busy with does not count."""
        caller = await served.caller()
        caller.post(body)
        longest, answered = 0.0, asyncio.ensure_future(caller.answered())
        last = time.process_time()
        while not answered.done():
            await asyncio.sleep(0)
            now = time.process_time()
            longest, last = max(longest, now - last), now
        caller.close()
        assert answered.result()[0] == 400
        return longest

    async def play(served: Served) -> None:
        began = time.process_time()
        json.loads(body)
        parsing = time.process_time() - began
        stalls = [await longest_stall(served) for _ in range(5)]
        assert min(stalls) < parsing / 2, f"{stalls} against {parsing}"

    serving(tmp_path, play)


def test_reviews_are_read_one_by_one_and_nothing_else_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, has_begun, begun = threading.Event(), threading.Event(), list[bytes]()

    def slowly(body: bytes) -> Any:
        begun.append(body)
        has_begun.set()
        assert go_on.wait(20), "nothing else ran meanwhile"
        return read_review(body)

    monkeypatch.setattr(server, "read_review", slowly)

    async def play(served: Served) -> None:
        answer, here = served.server._answer, asyncio.Queue[bytes]()

        async def answered(body: bytes) -> Any:
            here.put_nowait(body)
            return await answer(body)

        monkeypatch.setattr(served.server, "_answer", answered)
        callers = [await served.caller() for _ in range(3)]
        for caller in callers:
            caller.post(json.dumps(review()).encode())
        for _ in callers:
            await here.get()
        assert await asyncio.to_thread(has_begun.wait, 20)
        assert len(begun) == 1
        go_on.set()
        assert [(await caller.answered())[0] for caller in callers] == [200, 200, 200]
        for caller in callers:
            caller.close()

    serving(tmp_path, play)


def most_bytes_of_answers(folder: Path) -> int:
    often = review({"annotations": {"tidegate.io/containers": "app," * 16_000}})
    many = review(
        {"annotations": {"tidegate.io/containers": ",".join(f"{number:x}" for number in range(2000))}},
        containers=[{"name": f"{number:x}"} for number in range(2000)],
    )

    peaks: list[int] = []

    async def play(served: Served) -> None:
        tracemalloc.start()
        try:
            status, answer = await served.post(often)
            _, refused = await served.post(many)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert status == 200
        patch = json.loads(base64.b64decode(json.loads(answer)["response"]["patch"]))
        assert sum(operation["path"].startswith("/spec/containers/0/env") for operation in patch) == 1
        assert "at most 64" in json.loads(refused)["response"]["warnings"][0]
        await served.told()
        assert any(TOO_MANY in message for *_, message in served.events)

    serving(folder, play)
    return peaks[0]


def test_an_answer_takes_no_more_memory_than_a_few_times_what_was_asked(tmp_path: Path) -> None:
    """A tenant may create a pod with this annotation, and what each container gets is much longer than its name."""
    assert alone(most_bytes_of_answers, tmp_path) < 16 * _MIB


# --- how it is sent ---------------------------------------------------------------------------------------------------


def test_whoever_takes_his_time_is_dropped_at_each_step(tmp_path: Path) -> None:
    async def trickle(caller: Caller) -> None:
        caller.send(b"POST /mutate/pods HTTP/1.1\r\nX: ")
        while True:
            caller.send(b"x")
            await asyncio.sleep(0.2)

    async def play(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        says_nothing, slow_headers, slow_body = Caller(reader, writer), await served.caller(), await served.caller()
        slow_body.post(b"{", "/mutate/pods", "Content-Length: 100")
        trickling = asyncio.create_task(trickle(slow_headers))
        async with asyncio.timeout(10):
            assert (await slow_body.answered())[0] == 408
            for caller in (says_nothing, slow_headers):
                await caller.closed()
        trickling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await trickling

    serving(tmp_path, play, Limits(times=Times(begin_s=0.3, idle_s=600), body_s=0.4))


def test_whoever_says_nothing_more_is_dropped(tmp_path: Path) -> None:
    async def play(served: Served) -> None:
        idle = await served.caller()
        idle.post(json.dumps(review()).encode())
        assert (await idle.answered())[0] == 200
        async with asyncio.timeout(10):
            await idle.closed()

    serving(tmp_path, play, Limits(times=Times(begin_s=600, idle_s=0.3)))


def test_one_address_can_take_no_more_than_its_share_and_keeps_nobody_else_out(tmp_path: Path) -> None:
    limits = Limits(connections=20, per_address=15, times=Times(begin_s=30, idle_s=30), body_s=30)
    body = json.dumps(review()).encode()

    async def play(served: Served) -> None:
        attackers = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(100)]
        others: list[Caller] = []
        for count in range(9):
            # Its connections stay open, as an API server's do.
            others.append(await served.caller("127.0.0.2"))
            others[-1].post(body)
            assert (await others[-1].answered())[0] == 200, count
        open_ones = [writer for reader, writer in attackers if not reader.at_eof()]
        assert len(open_ones) <= 11
        for _, writer in attackers:
            writer.transport.abort()

    serving(tmp_path, play, limits)


def test_large_bodies_are_in_memory_a_few_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(body_s=30, large_at_once=2)
    large = json.dumps(review({"annotations": {"a": "x" * 100_000}})).encode()

    async def play(served: Served) -> None:
        slow = [await served.caller() for _ in range(2)]
        for caller in slow:
            caller.post(b"{", "/mutate/pods", f"Content-Length: {len(large)}")
        await asyncio.sleep(0.3)
        third = await served.caller()
        third.post(large)
        answered = asyncio.create_task(third.answered())
        # A small one does not wait for them; the third large one does.
        assert (await served.post(review()))[0] == 200
        await asyncio.sleep(0.3)
        assert not answered.done()
        slow[0].close()
        assert (await answered)[0] == 200

    serving(tmp_path, play, limits)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# --- what is told -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "owner",
    [
        {**OWNER, "name": "somebody-elses"},
        {**OWNER, "uid": "guessed"},
        {**OWNER, "kind": "Secret", "apiVersion": "v1"},
        {**OWNER, "uid": ""},
    ],
)
def test_nothing_is_said_of_an_object_that_the_api_server_does_not_confirm(tmp_path: Path, owner: Any) -> None:
    async def play(served: Served) -> None:
        status, _ = await served.post(review({"ownerReferences": [owner]}, os={"name": "windows"}))
        await served.told()
        assert status == 200
        assert served.events == []
        status, _ = await served.post(review(os={"name": "windows"}))
        await served.told()
        assert [(kind, name) for kind, name, _ in served.events] == [
            ("ReplicaSet", "payments"),
            ("OffsetResetPolicy", "p"),
        ]

    serving(tmp_path, play)


def test_a_notice_is_short_whatever_the_pod_is_called(tmp_path: Path) -> None:
    long = review({"annotations": {"tidegate.io/containers": "y" * 200_000}})

    async def play(served: Served) -> None:
        await served.post(long)
        await served.told()
        assert served.events
        assert all(len(message) < 1200 for *_, message in served.events)
        assert all(len(text) < 1200 for key in served.server._told for text in key)

    serving(tmp_path, play)


# --- who asks ---------------------------------------------------------------------------------------------------------


def test_where_api_servers_have_to_show_a_certificate_nobody_else_is_answered(tmp_path: Path) -> None:
    trusted, other = (CertificateAuthority.create(tmp_path / name) for name in ("trusted", "other"))
    (tmp_path / "tls").mkdir()
    body = json.dumps(review()).encode()

    def shown(authority: CertificateAuthority, name: str, **names: str) -> ssl.SSLContext:
        context, issued = ssl.create_default_context(), authority.issue(name, **names)
        context.load_cert_chain(issued.certificate, issued.key)
        return context

    async def asked(served: Served, client: ssl.SSLContext | None) -> tuple[int, bytes]:
        caller = await served.caller(client=client)
        try:
            caller.post(body)
            return await caller.answered()
        finally:
            caller.close()

    async def play(served: Served) -> None:
        for nobody in (None, shown(other, "apiserver")):
            with pytest.raises((OSError, EOFError)):
                await asked(served, nobody)
        status, told = await asked(served, shown(trusted, "kubelet"))
        assert (status, b"payments" in told) == (403, False)
        for caller in (shown(trusted, "apiserver"), shown(trusted, "x", alternative_names="DNS:apiserver")):
            assert (await asked(served, caller))[0] == 200

        # The CA is replaced where it is mounted.
        before = shown(trusted, "apiserver")
        trusted.certificate.write_bytes(other.certificate.read_bytes())
        with pytest.raises((OSError, EOFError)):
            await asked(served, before)
        assert (await asked(served, shown(other, "apiserver")))[0] == 200

    serving(tmp_path / "tls", play, callers=Callers(trusted.certificate, frozenset({"apiserver"})))


def test_a_ca_that_is_no_ca_is_named_before_anybody_is_let_in(tmp_path: Path) -> None:
    empty = tmp_path / "callers.crt"
    empty.touch()
    issued = CertificateAuthority.create(tmp_path / "authority").issue("apiserver").certificate
    for unusable in (empty, issued):
        with pytest.raises(OSError, match=f"TIDEGATE_WEBHOOK_CLIENT_CA: no usable CA certificates in {unusable}"):
            Served(tmp_path, callers=Callers(unusable, frozenset()))

"""/healthz: what is unobserved too long, and who answers."""

import asyncio
import json
import urllib.error
import urllib.request
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from tidegate.kube.ports import POLICIES, KubeFailure, KubeUnavailable
from tidegate.kube.unreadable import message_of, with_stalled
from tidegate.service.health import Freshness, health_route, keep_fresh, ready_route
from tidegate.service.http_server import HttpServer
from tidegate.service.settings import Address


class Time:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def policy(generation: int, observed: int | None, **metadata: Any) -> dict[str, Any]:
    status = {} if observed is None else {"observedGeneration": observed}
    return {
        "metadata": {"uid": "u", "namespace": "ns", "name": "p", "generation": generation, **metadata},
        "status": status,
    }


def test_a_generation_that_stays_unobserved_fails_the_check_until_it_is_seen() -> None:
    time = Time()
    freshness = Freshness(30, time)

    assert freshness.listed([(POLICIES, [policy(2, 1)])]) == 1
    time.at += 29
    freshness.listed([(POLICIES, [policy(2, 1)])])
    assert freshness.problems() == []
    time.at += 2
    assert freshness.problems() == ["OffsetResetPolicy ns/p generation 2 was not observed within 30 s"]

    assert freshness.listed([(POLICIES, [policy(2, 2)])]) == 0
    assert freshness.problems() == []


def test_one_whose_status_only_a_newer_version_can_read_is_observed_where_that_is_said() -> None:
    """Else one resource that was changed meanwhile would have the whole operator restarted again and again."""
    freshness, newer = Freshness(30, Time()), policy(2, 1)
    newer["status"]["ofTheNextVersion"] = 1
    assert freshness.listed([(POLICIES, [newer])]) == 1

    said = with_stalled(newer, message_of(POLICIES), datetime(2026, 11, 22, 3, 0, tzinfo=UTC))

    assert said is not None
    assert {name: value for name, value in said.items() if name != "conditions"} == newer["status"]
    assert freshness.listed([(POLICIES, [{**newer, "status": said}])]) == 0
    assert freshness.listed([(POLICIES, [{**policy(3, 1), "status": said}])]) == 1


def test_each_generation_has_its_own_time() -> None:
    time = Time()
    freshness = Freshness(30, time)
    freshness.listed([(POLICIES, [policy(2, 1)])])
    time.at += 29
    freshness.listed([(POLICIES, [policy(3, 2)])])
    time.at += 10

    assert freshness.problems() == []


def test_what_is_being_deleted_is_not_waited_for() -> None:
    freshness = Freshness(30, Time())

    assert freshness.listed([(POLICIES, [policy(2, None, deletionTimestamp="2026-01-01T00:00:00Z")])]) == 0


def test_a_listing_that_does_not_come_round_fails_the_check_and_says_why() -> None:
    time = Time()
    freshness = Freshness(30, time)
    freshness.listed([])
    freshness.failed("list offsetresetpolicies: 403")
    time.at += 31

    assert freshness.problems() == ["the operator has not listed its resources for 31 s: list offsetresetpolicies: 403"]


def test_a_process_that_was_replaced_fails_the_check_for_good_and_is_not_ready() -> None:
    freshness = Freshness(30, Time())
    freshness.listed([])
    freshness.begin()

    freshness.replaced("another process writes topic __tidegate now")
    freshness.listed([])

    assert freshness.problems() == ["another process writes topic __tidegate now"]
    assert health_route(freshness)({}).status == ready_route(freshness)({}).status == HTTPStatus.SERVICE_UNAVAILABLE


def test_who_stands_by_is_well_while_its_watches_tell_it_of_what_others_observe() -> None:
    time, told = Time(), set[int]()
    freshness = Freshness(30, time)
    freshness.stand_by(lambda _kind, body: body["metadata"]["generation"] in told)
    assert not freshness.leads

    freshness.listed([(POLICIES, [policy(2, 1)])])
    time.at += 31
    assert freshness.problems()[:1] == ["OffsetResetPolicy ns/p generation 2 was not observed within 30 s"]
    told.add(2)
    freshness.listed([(POLICIES, [policy(2, 1)])])
    assert freshness.problems() == []


def test_who_begins_to_lead_has_its_time_for_what_the_one_before_has_left() -> None:
    time = Time()
    freshness = Freshness(30, time)
    freshness.stand_by(lambda _kind, _body: False)
    freshness.listed([(POLICIES, [policy(2, 1)])])
    time.at += 25

    freshness.lead()
    freshness.listed([(POLICIES, [policy(2, 1)])])
    time.at += 25
    assert freshness.leads
    assert freshness.problems() == []
    time.at += 6
    assert freshness.problems()[:1] == ["OffsetResetPolicy ns/p generation 2 was not observed within 30 s"]


def test_a_lease_that_cannot_be_used_fails_the_check_after_a_while() -> None:
    time = Time()
    freshness = Freshness(30, time)
    freshness.listed([])
    freshness.troubled("read Lease ns/tidegate: 403 forbidden")
    time.at += 20
    freshness.listed([])
    freshness.troubled("read Lease ns/tidegate: 403 forbidden")
    assert freshness.problems() == []
    time.at += 11
    assert freshness.problems() == ["the Lease could not be used for 31 s: read Lease ns/tidegate: 403 forbidden"]

    freshness.troubled("")
    assert freshness.problems() == []


def test_the_check_is_open_to_anybody_and_names_nobody() -> None:
    time = Time()
    freshness = Freshness(30, time)
    server = HttpServer("TIDEGATE_HEALTH_ADDRESS", Address("127.0.0.1", 0), {"/healthz": health_route(freshness)})
    server.start()
    try:
        assert _get(server.port, "/healthz") == (200, {"healthy": True, "problems": 0, "leader": True})
        freshness.listed([(POLICIES, [policy(2, 1)])])
        time.at += 31
        assert _get(server.port, "/healthz") == (503, {"healthy": False, "problems": 2, "leader": True})
        assert _get(server.port, "/") == (404, "there is /healthz\n")
    finally:
        server.stop()


def test_it_is_ready_once_everybody_has_taken_in_the_first_listing_that_is_asked_for_again_soon() -> None:
    freshness = Freshness(30, Time())
    ready = ready_route(freshness)
    seen: list[HTTPStatus] = []
    answers: list[list[Any] | KubeFailure] = [KubeUnavailable("429 storage is (re)initializing"), []]

    async def list_all() -> list[Any]:
        seen.append(ready({}).status)
        answer = answers.pop(0)
        if isinstance(answer, KubeFailure):
            raise answer
        return answer

    async def begin() -> None:
        taken_in = asyncio.Event()

        async def listed(_found: list[Any], _unobserved: int) -> None:
            seen.append(ready({}).status)
            asyncio.get_running_loop().call_soon(taken_in.set)

        keeping = asyncio.create_task(keep_fresh(freshness, list_all, 3600, listed))
        async with asyncio.timeout(10):
            await taken_in.wait()
        keeping.cancel()

    asyncio.run(begin())

    assert seen == [HTTPStatus.SERVICE_UNAVAILABLE] * 3
    assert ready({}).status is HTTPStatus.OK


def _get(port: int, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    return status, json.loads(text) if text.startswith("{") else text


def test_what_the_operator_knows_of_and_has_not_come_to_is_busy_and_not_stuck() -> None:
    time = Time()
    freshness = Freshness(30, time)

    def look(*, busy: bool) -> list[str]:
        freshness.listed([(POLICIES, [policy(2, 1)])], lambda _kind, _body, _within_s: busy)
        return freshness.problems()

    assert look(busy=True) == []
    time.at += 100
    assert look(busy=True) == []
    assert look(busy=False) != [], "nothing of its kind comes round any more"
    assert look(busy=True) == []

    time.at += 201
    assert look(busy=True) != [], "not for ever"

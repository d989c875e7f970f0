"""What the page of ``tidegate ui`` says of itself and of what it shows is so, also when things go wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from support.chromium import Browser
from support.planned_runs import a_run
from support.served_ui import Scene, SeenByTests, furnish, some_kafka
from tidegate.cli.ui import board, server
from tidegate.cli.ui.actions import Done
from tidegate.incident.seen import KafkaSeen, Unseen
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.ports import PAUSES, RESETS
from tidegate.resources.reset import ResetPhase

pytestmark = pytest.mark.e2e_cluster

RESET: Final = "#/reset/shop/replay-2026-11-20"
GROUP: Final = "#/group/shop%2Fprod/payments-eu"
BEYOND: Final = 2**53 + 1
"""The least whole number that a double, which is what JavaScript counts with, does not hold."""


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with Browser() as made:
        yield made


def opened(browser: Browser, scene: Scene, view: str, there: str) -> None:
    browser.open("about:blank")
    browser.open(scene.address)
    browser.until("document.querySelectorAll('.row').length > 2", "the list")
    browser.run(f"location.hash = {view!r}")
    browser.until(there, view)


def slow_kafka() -> SeenByTests:
    """As brokers at some distance."""
    eye = some_kafka(3)
    at_once = eye.group

    def slowly(group_id: str) -> KafkaSeen:
        time.sleep(1)
        return at_once(group_id)

    eye.group = slowly  # type: ignore[method-assign]
    return eye


def furnished(scene: Scene | None = None) -> Scene:
    made = scene or Scene(some_kafka(3), seconds=5)
    furnish(made, 3)
    return made


def test_it_is_not_live_while_its_server_stands_still(started: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspended, or behind a tunnel that died: the connection stays open, and nothing comes."""
    monkeypatch.setattr(server, "_ALIVE_S", 0.5)
    goes_on = threading.Event()
    with furnished() as scene:
        opened(started, scene, "#/now", "document.querySelector('#live').dataset.state === 'live'")
        try:
            scene.loop.call_soon_threadsafe(goes_on.wait)
            started.until("document.querySelector('#live').dataset.state === 'lost'", "that nothing comes")
        finally:
            goes_on.set()
        started.until("document.querySelector('#live').dataset.state === 'live'", "that it goes on")


def test_a_page_is_shown_however_often_something_changes(started: Browser) -> None:
    over = threading.Event()
    with furnished(Scene(slow_kafka(), seconds=5)) as scene:
        status = scene.kube.get(PAUSES, "shop", "inc-4711")["status"]

        def busy() -> None:
            for n in range(10_000):
                if over.wait(0.05):
                    return
                scene.status(PAUSES, "shop", "inc-4711", {**status, "paused": f"{n % 2}/2"})

        changing = threading.Thread(target=busy)
        changing.start()
        try:
            opened(started, scene, GROUP, "document.querySelector('.detail h1')")
        finally:
            over.set()
            changing.join()


def test_a_tab_that_may_not_listen_shows_pages_all_the_same(started: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "MOST_LISTENERS", 0)
    with furnished(Scene(slow_kafka(), seconds=5)) as scene:
        started.open("about:blank")
        started.open(scene.address)
        started.until("document.querySelector('#live')?.title.includes('close one')", "why it is not live")
        assert "close one" in started.run("document.querySelector('.none').innerText")
        started.run(f"location.hash = {GROUP!r}")
        started.until("document.querySelector('.detail h1')", GROUP)


def test_why_kafkas_groups_are_not_listed_is_said(started: Browser) -> None:
    with furnished(Scene(seconds=5)) as scene:
        opened(started, scene, "#/groups", "document.querySelector('.list-head').innerText.includes('--connection')")


def test_a_listing_of_groups_that_fails_is_said(started: Browser) -> None:
    eye = some_kafka(3)

    def refused() -> Any:
        raise KafkaFailure("list groups: not authorized")

    eye.groups = refused  # type: ignore[method-assign]
    with furnished(Scene(eye, seconds=5)) as scene:
        opened(started, scene, "#/groups", "document.querySelector('.list-head').innerText.includes('not authorized')")


def test_offsets_are_shown_to_the_last_digit(started: Browser) -> None:
    run = a_run()
    assert run.plan is not None
    moved = replace(run.plan.partitions[0], committed=BEYOND + 4, target=BEYOND, latest=BEYOND + 10)
    with furnished(Scene(seconds=5)) as scene:
        scene.runs.runs["shop", "replay-done"] = replace(run, plan=replace(run.plan, partitions=(moved,)))
        opened(started, scene, "#/reset/shop/replay-done", "document.querySelector('.lanes tbody tr')")

        cells = started.run("[...document.querySelector('.lanes tbody tr').cells].map((c) => c.innerText)")

    assert [cells[2], cells[3], cells[5]] == [f"{BEYOND + 4:,}", f"{BEYOND:,}", f"{BEYOND + 10:,}"]


def test_a_committed_offset_beyond_the_end_is_no_lag_of_nothing(started: Browser) -> None:
    with furnished() as scene:
        opened(started, scene, GROUP, "document.querySelector('td.bar')")

        rows = started.run("[...document.querySelectorAll('tbody tr')].map((r) => r.innerText)")

    assert [row.split()[0] for row in rows if "beyond the end" in row] == ["orders-2", "refunds-1"]


def test_a_time_that_this_clock_has_not_reached_is_not_taken_for_now(started: Browser) -> None:
    with furnished() as scene:
        opened(started, scene, "#/now", "document.querySelector('.row')")

        told = started.run(
            "import('/dom.js').then(({ago}) => [-400, -20, 0, 90].map("
            "(s) => ago(new Date(Date.now() - s * 1000).toISOString())))"
        )

    assert told == ["in 6 min", "in 20 s", "0 s ago", "1 min ago"]


def test_nothing_can_be_approved_of_a_reset_that_is_gone(started: Browser) -> None:
    with furnished() as scene:
        opened(started, scene, RESET, "document.querySelector('.actions button')")

        scene.kube.delete(RESETS, "shop", "replay-2026-11-20", "2026-11-22T03:00:00Z")

        started.until("document.querySelector('.failed')?.innerText.includes('seen last')", "that it is gone")
        assert started.run("document.querySelectorAll('.actions button').length") == 0


def test_the_plan_of_a_reset_that_was_made_again_is_its_own(started: Browser) -> None:
    with furnished() as scene:
        before, run = scene.kube.get(RESETS, "shop", "replay-done"), scene.runs.runs["shop", "replay-done"]
        assert run.plan is not None
        opened(started, scene, "#/reset/shop/replay-done", "document.querySelector('.plan')")
        scene.kube.delete(RESETS, "shop", "replay-done", "2026-11-22T03:00:00Z")
        started.until("document.querySelector('.failed')?.innerText.includes('seen last')", "that it is gone")

        scene.runs.runs["shop", "replay-done"] = replace(run, plan=replace(run.plan, notes=("Of another reset",)))
        scene.put(RESETS, "shop", "replay-done", before["spec"], before["status"])

        started.until("document.querySelector('.plan').textContent.includes('Of another reset')", "its own plan")


def test_what_kafka_refuses_to_tell_of_a_group_is_not_said_to_be_nothing(started: Browser) -> None:
    eye = some_kafka(3)
    refused = (Unseen("the group's state and members", "not authorized"), Unseen("the committed offsets", "same"))
    eye.seen["payments-eu"] = replace(eye.seen["payments-eu"], group=None, committed=None, bounds={}, unseen=refused)
    with furnished(Scene(eye, seconds=5)) as scene:
        scene.kube.delete(PAUSES, "shop", "inc-4711", "2026-11-22T03:00:00Z")
        opened(started, scene, GROUP, "document.querySelector('.detail').innerText.includes('not authorized')")

        assert "no committed offsets" not in started.run("document.querySelector('.detail').innerText")


def test_a_page_looks_again_where_kafka_did_not_answer_and_does_not_say_that_it_was_not_asked(started: Browser) -> None:
    eye = some_kafka(3)
    known = eye.seen["payments-eu"]
    eye.seen["payments-eu"] = KafkaSeen("__tidegate", unseen=(Unseen("Kafka", "no broker answers"),))
    with furnished(Scene(eye, seconds=60)) as scene:
        opened(started, scene, GROUP, "document.querySelector('.detail').innerText.includes('no broker answers')")

        words = started.run("document.querySelector('.detail').innerText")
        eye.seen["payments-eu"] = known
        started.until("!document.querySelector('.detail').innerText.includes('no broker answers')", "that it answers")

    assert "ConsumerGroupPause shop/inc-4711" in words, "what the pause says of its partitions"
    assert "Kafka is not asked" not in words


def test_an_owner_that_kafka_refuses_to_tell_of_is_not_nobody(started: Browser) -> None:
    eye = some_kafka(3)
    refused = (Unseen("the group's state and members", "not authorized"),)
    eye.seen["payments-eu"] = replace(eye.seen["payments-eu"], group=None, unseen=refused)
    with furnished(Scene(eye, seconds=5)) as scene:
        opened(started, scene, GROUP, "document.querySelector('td.owner')")

        owners = started.run("[...document.querySelectorAll('td.owner')].map((e) => e.innerText)")

    assert set(owners) == {"not known"}


def test_what_is_approved_is_said_and_so_is_an_approval_without_effect(
    started: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "approve", lambda *_: Done("x", False, "OwnReset: grace has asked for it herself"))
    with furnished() as scene:
        opened(started, scene, RESET, "document.querySelector('.actions button')")
        started.press("a")
        started.until("document.querySelector('#ask[open]')", "the question")

        asked = started.run("document.querySelector('#ask-body').innerText")
        started.run("document.querySelector('#ask-yes').click()")
        started.until("document.querySelector('#ask-error').innerText.includes('OwnReset')", "why it has no effect")

    assert "5 of 6 partitions move" in asked
    assert "1,904,880 records are read again and 6,500 are skipped" in asked
    assert "no effect" in started.run("document.querySelector('#ask-error').innerText")


def test_states_are_words(started: Browser) -> None:
    with furnished() as scene:
        scene.reset("soon", ResetPhase.AWAITING_APPROVAL, "waits")
        opened(started, scene, "#/now", "document.querySelector('.state.bad')")

        states = started.run("[...document.querySelectorAll('.row .state')].map((e) => e.innerText)")

    assert {"Awaiting approval", "Not ready"} <= set(states)

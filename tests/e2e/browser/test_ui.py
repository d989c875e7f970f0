"""The page of ``tidegate ui`` in Debian's Chromium, which `dev/install-node-prerequisites` installs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from support.chromium import Browser
from support.hostile import HOSTILE
from support.planned_runs import a_plan, a_run
from support.served_ui import CONNECTION, TOKEN, Scene, condition, furnish, some_kafka
from tidegate.kube.ports import APPROVALS, PAUSES, RESETS
from tidegate.resources.reset import ResetPhase

pytestmark = pytest.mark.e2e_cluster

GROUPS: Final = 1000
SCREENSHOTS: Final = Path(__file__).resolve().parents[3] / "build" / "ui"
"""For a person to look at."""

RESET = "#/reset/shop/replay-2026-11-20"


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    made = Scene(some_kafka(GROUPS), seconds=5)
    furnish(made, GROUPS)
    with made:
        yield made


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with Browser() as made:
        yield made


@pytest.fixture
def browser(started: Browser, scene: Scene) -> Iterator[Browser]:
    """With the page open. Whatever a test does, nothing is loaded from elsewhere, and nothing is refused or fails."""
    started.look()
    started.open("about:blank")
    started.requests.clear()
    started.console.clear()
    started.open(scene.address)
    started.until("document.querySelectorAll('.row').length > 2", "the list")
    yield started
    started.run("1")  # so that what it has noted last is read
    assert {url for url in started.requests if not url.startswith((scene.url + "/", "about:"))} == set()
    assert [said for said in started.console if said.startswith("error")] == []


def go(browser: Browser, view: str, there: str) -> None:
    browser.run(f"location.hash = {view!r}")
    browser.until(there, view)


def test_the_token_leaves_the_address_and_is_in_no_cookie(browser: Browser, scene: Scene) -> None:
    assert browser.run("location.href") == f"{scene.url}/#/now"
    assert browser.run("document.cookie") == ""
    assert not [url for url in browser.requests if TOKEN in url.partition("#")[0]]

    browser.send("Page.reload")
    browser.until("document.querySelectorAll('.row').length > 2", "the list, also after a reload")


def test_without_the_token_nothing_is_shown(scene: Scene) -> None:
    with Browser() as other:
        other.open(f"{scene.url}/#/groups")
        other.until("document.body?.innerText.includes('kubectl tidegate ui')", "where the address is printed")

        assert "payments" not in other.run("document.body.innerText")


def test_a_thousand_groups_are_listed_filtered_and_walked_by_the_keyboard(browser: Browser) -> None:
    browser.press("2")
    browser.until(f"document.querySelectorAll('.row').length === {GROUPS + 1}", "all groups")
    browser.screenshot(SCREENSHOTS / "groups-light.png")
    browser.press("j")
    browser.press("j")
    first_two = browser.run("[...document.querySelectorAll('.row a')].slice(0, 2).map((a) => a.textContent)")
    assert browser.run("document.querySelector('.row[aria-selected=true] a').textContent") == first_two[1]
    browser.press("k")
    browser.press("/")
    assert browser.run("document.activeElement.id") == "filter"
    for key in "0717":
        browser.press(key)
    browser.until("document.querySelectorAll('.row').length === 1", "the one that matches")
    browser.press("ArrowDown")
    browser.press("Enter")
    browser.until("document.querySelector('.detail h1')?.textContent.startsWith('team-37.service-0717')", "its page")
    browser.press("Escape")
    browser.until("document.querySelector('#filter')", "the list again")


def test_a_change_is_shown_without_asking_for_it(browser: Browser, scene: Scene) -> None:
    go(browser, "#/pauses", "document.querySelectorAll('.row').length === 1")
    row = "document.querySelector('.row .state').textContent"
    assert browser.run(row) == "Paused 2/2"
    before = scene.kube.get(PAUSES, "shop", "inc-4711")["status"]

    scene.status(PAUSES, "shop", "inc-4711", {**before, "phase": "Pausing", "paused": "1/2"})
    browser.until(f"{row} === 'Pausing 1/2'", "the new state")
    scene.status(PAUSES, "shop", "inc-4711", before)
    browser.until(f"{row} === 'Paused 2/2'", "the old one again")


def test_a_reset_is_followed_lane_by_lane(browser: Browser, scene: Scene) -> None:
    go(browser, "#/reset/shop/replay-applying", "document.querySelectorAll('.lane').length === 6")
    numbers = "[...document.querySelectorAll('.lanes tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))"
    orders = browser.run(numbers)[1]

    assert [orders[0], *orders[2:]] == ["orders-1", "1,100,000", "400,000", "401,000", "1,110,000"]
    assert browser.run("document.querySelector('.steps [aria-current=step] .name').textContent") == "Applying"
    status = scene.kube.get(RESETS, "shop", "replay-applying")["status"]
    scene.status(RESETS, "shop", "replay-applying", {**status, "phase": "Verifying"})
    browser.until(
        "document.querySelector('.steps [aria-current=step] .name').textContent === 'Verifying'", "the next phase"
    )
    scene.status(RESETS, "shop", "replay-applying", status)


def test_a_plan_is_approved_as_it_is_on_the_page(browser: Browser, scene: Scene) -> None:
    go(browser, RESET, "document.querySelector('.actions button')")
    assert browser.run("document.querySelectorAll('.plan-body svg.plot').length") == 2
    browser.screenshot(SCREENSHOTS / "reset-light.png")
    browser.press("a")
    browser.until("document.querySelector('#ask[open]')", "the question")
    assert scene.kube.list(APPROVALS) == []

    browser.run("document.querySelector('#ask-yes').click()")
    browser.until("!document.querySelector('#ask[open]')", "the answer", within_s=30)

    (made,) = scene.kube.list(APPROVALS)
    digest = scene.kube.get(RESETS, "shop", "replay-2026-11-20")["status"]["digest"]
    assert made["spec"] == {"reset": "replay-2026-11-20", "plan": digest, "approver": "ada@example.org"}
    assert "has not reported yet" in browser.run("document.querySelector('#toast').textContent")


def test_a_reset_is_undone_by_another_one_that_waits_for_an_approval(browser: Browser, scene: Scene) -> None:
    go(browser, "#/reset/shop/replay-done", "document.querySelector('.actions button')")
    browser.run("document.querySelector('.actions button').click()")
    browser.until("document.querySelector('#ask[open]')", "the question")
    browser.run("document.querySelector('#ask-yes').click()")
    browser.until("document.querySelector('.detail h1')?.textContent.startsWith('undo-')", "the page of the new one")

    undoing = scene.kube.get(RESETS, "shop", browser.run("location.hash.split('/').at(-1)"))
    assert undoing["spec"]["to"] == {"undo": "replay-done"}
    assert undoing["spec"]["approval"] == "Manual"


def test_a_fleet_leads_to_the_lanes_of_each_group_and_is_approved_as_a_whole(browser: Browser) -> None:
    go(browser, "#/reset/shop/replay-fleet", "document.querySelector('.actions button')")
    browser.run("document.querySelector('a[href$=\"/payments-eu\"]').click()")
    browser.until("document.querySelectorAll('.lane').length === 6", "the group's lanes")

    assert browser.run("document.querySelectorAll('.actions button').length") == 0


def test_dark_and_light_follow_the_system_and_narrow_windows_are_not_cut(browser: Browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(background)
    browser.look(dark=True)
    assert browser.run(background) != light
    go(browser, RESET, "document.querySelector('.plan-body')")
    browser.screenshot(SCREENSHOTS / "reset-dark.png")
    for view in ("#/now", "#/groups", RESET, "#/group/shop%2Fprod/payments-eu"):
        browser.look(width=390, height=800)
        go(browser, view, "document.querySelector('.row, .detail h1')")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth"), view
        browser.screenshot(SCREENSHOTS / f"narrow-{view.strip('#/').split('/')[0]}.png")


def test_whatever_can_be_used_has_a_name_for_who_does_not_see_it(browser: Browser) -> None:
    used = ("button", "link", "textbox", "searchbox", "checkbox", "listbox", "option", "dialog", "navigation", "img")
    browser.send("Accessibility.enable")
    for view, there in (
        ("#/now", ".row"),
        (RESET, ".actions button"),
        ("#/object/consumergrouppauses/shop/inc-4711", "td.owner"),
    ):
        go(browser, view, f"document.querySelector({there!r})")
        nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
        found = [n for n in nodes if not n.get("ignored") and n.get("role", {}).get("value") in used]
        assert found
        assert [n for n in found if not n.get("name", {}).get("value")] == [], view


def test_hostile_text_stays_text(browser: Browser, scene: Scene) -> None:
    hostile = HOSTILE.replace("\ud800", "")
    run = a_run(plan=replace(a_plan(), group_id=hostile, notes=(hostile,)))
    scene.runs.runs["shop", "hostile"] = run
    status = {
        "phase": ResetPhase.AWAITING_APPROVAL.value,
        "digest": run.digest,
        "requester": hostile,
        "conditions": [condition("Complete", "Unknown", "R", hostile)],
    }
    scene.put(RESETS, "shop", "hostile", {**CONNECTION, "group": hostile, "to": {"group": hostile}}, status)
    browser.until("[...document.querySelectorAll('.row a')].some((a) => a.textContent === 'hostile')", "its line")
    browser.run("alert = () => { window.ran = true }")

    go(browser, "#/reset/shop/hostile", "document.querySelector('.plan-body')")
    assert "<script>alert(1)</script>" in browser.run("document.querySelector('.detail').textContent")
    browser.run("document.querySelector('.head a').click()")
    browser.until("document.querySelector('.crumb')?.textContent.startsWith('Group')", "the page of its group")
    assert "<script>alert(1)</script>" in browser.run("document.querySelector('.detail h1').textContent")
    go(browser, "#/groups", "document.querySelectorAll('.row').length > 900")

    assert browser.run("window.ran") is None
    assert browser.run("document.querySelectorAll('script').length") == 1
    assert browser.run("document.querySelectorAll('main img, main iframe, main style').length") == 0
    scene.kube.delete(RESETS, "shop", "hostile", "2026-11-22T03:00:00Z")
    browser.until(
        "![...document.querySelectorAll('.row a')].some((a) => a.textContent.includes('alert'))", "it is gone"
    )


def test_even_a_mistake_of_the_page_would_run_nothing(scene: Scene) -> None:
    with Browser() as other:
        other.open(scene.address)
        other.until("document.querySelectorAll('.row').length > 2", "the list")

        assert (
            other.run(
                "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'done' } catch (e) { return e.name } })()"
            )
            == "TypeError"
        )
        other.run(
            "(() => { const s = document.createElement('img'); s.src = 'http://127.0.0.1:9/x.png'; "
            "document.body.append(s); fetch('http://127.0.0.1:9/').catch(() => {}) })()"
        )
        other.until("document.images.length === 1", "the image that is not loaded")
        assert len([said for said in other.console if "Content Security Policy" in said]) >= 2


def test_a_page_whose_server_is_gone_says_so_and_keeps_what_it_has() -> None:
    scene = Scene(seconds=0.2)
    furnish(scene, 3)
    with Browser() as other:
        with scene:
            other.open(scene.address)
            other.until("document.querySelectorAll('.row').length > 2", "the list")
        other.until("document.querySelector('#live').dataset.state === 'lost'", "that it is lost")

        assert other.run("document.querySelectorAll('.row').length") > 2
        assert "was it ended" in other.run("document.querySelector('#live').title")

"""The groups of a cluster: as many as a page holds, and how many more there are."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from support.served_ui import TOKEN, Scene, SeenByTests
from tidegate.cli.ui import server
from tidegate.cli.ui.kafka import ClosedEye, Eye
from tidegate.kafka.model import ListedGroup


def listed(eye: Eye) -> Any:
    with Scene(eye) as scene:
        connection = http.client.HTTPConnection(scene.host, timeout=20)
        connection.request("GET", "/api/groups", headers={"Authorization": f"Bearer {TOKEN}"})
        found = json.load(connection.getresponse())
        connection.close()
    return found


@pytest.mark.parametrize(("more", "shown", "omitted"), [(-1, 9, 0), (0, 10, 0), (3, 10, 3)])
def test_groups_that_a_page_does_not_hold_are_counted(
    more: int, shown: int, omitted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_GROUPS", 10)
    groups = [ListedGroup(f"g{n:02}", "consumer", "classic", "Stable") for n in range(10 + more)]

    found = listed(SeenByTests(("shop", "prod"), groups))

    assert ([each["group"] for each in found["groups"]], found["groupsOmitted"]) == (
        [f"g{n:02}" for n in range(shown)],
        omitted,
    )


def test_where_no_cluster_is_asked_nothing_is_left_out() -> None:
    assert listed(ClosedEye())["groupsOmitted"] == 0

"""Brokers that do not answer keep nobody from what does not need them."""

from __future__ import annotations

import http.client
import json
import threading

import pytest

from support.served_ui import TOKEN, Scene, SeenByTests, furnish
from tidegate.incident.seen import KafkaSeen


class Silent(SeenByTests):
    """Answers once it is let."""

    def __init__(self) -> None:
        super().__init__(("shop", "prod"))
        self.asked, self.answers = threading.Event(), threading.Event()

    def group(self, group_id: str) -> KafkaSeen:
        self.asked.set()
        self.answers.wait(60)
        return super().group(group_id)


def asking(scene: Scene, path: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(scene.host, timeout=20)
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    return connection


@pytest.mark.parametrize("path", ["/api/group?connection=shop%2Fprod&group=g", "/api/reset/shop/replay-done"])
def test_pages_that_wait_for_kafka_keep_no_plan_from_being_shown(path: str) -> None:
    eye = Silent()
    scene = Scene(eye)
    furnish(scene, 1)
    with scene:
        # More than there are threads for all else.
        waiting = [asking(scene, path) for _ in range(8)]
        try:
            assert eye.asked.wait(20)
            answer = asking(scene, "/api/plan/shop/replay-done").getresponse()
            assert answer.status == 200
            assert "html" in json.load(answer)
        finally:
            eye.answers.set()
            for connection in waiting:
                connection.close()

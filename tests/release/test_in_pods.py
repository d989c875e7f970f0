"""A release as somebody new to it has it: its files and images, a cluster, a Kafka, and the tutorial, word for word.

Where the tutorial asks for a browser, Debian's Chromium is the reader's. A process of its own runs this (``make nightly
PARTS=release``), since a machine has one node at a time.
"""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from devstack.images import build_image
from devstack.kafka import KafkaCluster
from devstack.node import Node
from devstack.release import Order, make_release
from devstack.release_trial import clean_environment, play
from devstack.toolcache import helm_binary
from devstack.version import version_of
from support.chromium import Browser
from support.operator_process import until
from support.released import clone_for_release

pytestmark = [pytest.mark.e2e_cluster, pytest.mark.nightly]

REGISTRY: Final = "registry.example.com/team"
TUTORIAL: Final = Path("docs", "tutorials", "in-a-cluster.md")
PLAYED_S: Final = 600.0


def address(printed: Path, playing: Future[None]) -> str:
    """Of the page, once ``tidegate ui`` has printed it. Raises whatever has ended the tutorial before."""

    def said() -> list[str]:
        if playing.done():
            playing.result()
        texts = [path.read_text() for path in printed.glob("*")]
        return [found for text in texts for found in re.findall(r"^http://127\.0\.0\.1:\d+/#token=\S+$", text, re.M)]

    return until(said, "the address of the page", timeout_s=PLAYED_S, pause_s=0.5)[0]


def approve(page: str) -> list[str]:
    """As the tutorial says it; the URLs that the browser asked for."""
    with Browser() as browser:
        browser.open(page)
        name = "[...document.querySelectorAll('.row a')].find((a) => a.textContent === 'back-10')"
        browser.until(name, "back-10 under Now")
        browser.run(f"{name}.click()")
        browser.until("document.querySelector('.plan-body')", "its plan")
        button = "[...document.querySelectorAll('.actions button')].find((b) => b.textContent === 'Approve the plan…')"
        browser.until(button, "the button of that name")
        browser.run(f"{button}.click()")
        browser.until("document.querySelector('#ask[open]')", "the question")
        browser.run("document.querySelector('#ask-yes').click()")
        done = "document.querySelector('.detail h1')?.innerText.includes('Succeeded')"
        browser.until(done, "the page says that it has succeeded", within_s=120)
        return browser.requests


def test_the_tutorial_is_true_of_a_release_in_a_cluster(tmp_path: Path) -> None:
    clone = clone_for_release(tmp_path / "clone")
    version = version_of(clone)
    dist = make_release(Order(version, registry=REGISTRY, tried=False), clone)
    images = [
        build_image(target, name=f"{REGISTRY}/tidegate-{target}:{version}", context=clone)
        for target in ("operator", "agent")
    ]
    with Node.start() as node:
        node.load(*images)
        with KafkaCluster.start(host=Node.address) as kafka, ThreadPoolExecutor(1) as reader:
            env = clean_environment(helm_binary().parent)
            env |= {"KUBECONFIG": str(node.kubeconfig), "KAFKA": kafka.bootstrap, "BROWSER": "true"}
            playing = reader.submit(play, clone / TUTORIAL, dist, env)
            page = address(dist / "printed", playing)
            asked = approve(page)
            playing.result()

    own = page.partition("#")[0]
    assert {url for url in asked if not url.startswith((own, "about:"))} == set()
    assert (dist / "audit.html").exists()

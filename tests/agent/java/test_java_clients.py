"""Java's consumers obey gates: the scenes of the Python clients on a real broker, and what only Java's clients have."""

from __future__ import annotations

import time
from functools import partial

import pytest

from agent.java.conftest import Jvms
from support import gate_scenes
from support.gated_applications import Scene
from support.java_applications import Java, JavaProcess

pytestmark = pytest.mark.at_once(3)

NEWEST = Java("4.3.1", "consumer")
CLASSIC = Java("4.3.1", "classic")
OLDEST = Java("2.8.2", "classic")


def test_without_the_agent_a_gate_is_not_obeyed(scene: Scene) -> None:
    """What the other tests see is the agent's work."""
    with JavaProcess(NEWEST, {}) as jvm:
        application = scene.application(jvm.application)
        scene.flowing()
        epoch = scene.hold()
        with pytest.raises(AssertionError, match="an ack of epoch"):
            scene.acked(epoch, seconds=3.0)
        held_at = time.monotonic()
        scene.flowing(0, 1, since=held_at)
        application.stop()


@pytest.mark.parametrize("java", [NEWEST, CLASSIC, OLDEST], ids=str)
@pytest.mark.parametrize("play", gate_scenes.AT_ANY, ids=lambda play: play.__name__)
def test_gates_are_obeyed(scene: Scene, jvms: Jvms, java: Java, play: gate_scenes.Play) -> None:
    play(scene, partial(scene.application, jvms(java).application))

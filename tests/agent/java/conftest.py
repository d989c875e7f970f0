"""JVMs that tests of one module share, and scenes for what runs in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from devstack import KafkaCluster
from support.gated_applications import Scene
from support.java_applications import Java, JavaProcess, agent_environment
from support.needs import starts
from support.stack_fixtures import MakeTopic, Unique

Jvms = Callable[[Java], JavaProcess]


@pytest.fixture(scope="module")
def control_topic() -> str:
    """The module's: a JVM has one."""
    return "__tidegate-java"


@pytest.fixture(scope="module")
@starts("kafka")
def jvms(control_topic: str) -> Iterator[Jvms]:
    """With the agent; started when they are first asked for, and kept for the module's other tests."""
    with ExitStack() as stack:
        kept: dict[Java, JavaProcess] = {}

        def jvm(java: Java) -> JavaProcess:
            if java not in kept:
                kept[java] = stack.enter_context(JavaProcess(java, agent_environment(control_topic)))
            return kept[java]

        yield jvm


@pytest.fixture
def scene(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, control_topic: str) -> Iterator[Scene]:
    """Two partitions that are written to."""
    with closing(Scene(kafka.bootstrap, make_topic(2), unique("java"), control_topic=control_topic)) as made:
        yield made


@pytest.fixture
def quiet_scene(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, control_topic: str) -> Iterator[Scene]:
    """Two partitions that nobody writes to, unless the test does."""
    name = unique("java")
    with closing(Scene(kafka.bootstrap, make_topic(2), name, writes=False, control_topic=control_topic)) as made:
        yield made

"""The fixtures and hooks of every test."""

import pytest
from hypothesis import HealthCheck, settings

from support.needs import pytest_runtest_call, pytest_runtest_setup
from support.schedule import pytest_addoption, pytest_configure
from support.selection import pytest_collection_modifyitems
from support.stack_fixtures import (
    apiserver,
    connect_worker,
    crds_installed,
    kafka,
    kafka3,
    kafka_secure,
    kube_client,
    make_topic,
    make_topic3,
    namespace,
    pytest_terminal_summary,
    unique,
)

# What fails in a scene shows the values that it compared, as in a test.
pytest.register_assert_rewrite("support.gate_scenes", "support.java_scenes")

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

pytest_plugins = ["support.failures", "support.hangs", "support.at_once", "support.threats"]

__all__ = [
    "apiserver",
    "connect_worker",
    "crds_installed",
    "kafka",
    "kafka3",
    "kafka_secure",
    "kube_client",
    "make_topic",
    "make_topic3",
    "namespace",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
    "unique",
]

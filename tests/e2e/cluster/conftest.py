"""One node for all tests in pods, and everything on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from support.pod_stage import PodStage, pod_stage
from support.pods import Stopwatch
from support.stack_fixtures import TEST_LOGS

STOPWATCH: Final = pytest.StashKey[Stopwatch]()


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Iterator[PodStage]:
    """Up to an application that flows."""
    with pod_stage() as started:
        request.config.stash[STOPWATCH] = started.stopwatch
        started.stopwatch.step("application managed by a label, until it flows", started.application.deploy)
        yield started
        if request.session.testsfailed:
            started.keep_logs(TEST_LOGS / "node")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what every step took."""
    if STOPWATCH in config.stash:
        terminalreporter.section("in pods")
        terminalreporter.write_line(config.stash[STOPWATCH].table())

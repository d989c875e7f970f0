"""One node for all tests in pods, and everything on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.pod_stage import PodStage, pod_stage
from support.stack_fixtures import TEST_LOGS


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Iterator[PodStage]:
    """Up to an application that flows; what every step took is printed in the end."""
    with pod_stage() as started:
        started.stopwatch.step("application managed by a label, until it flows", started.application.deploy)
        yield started
        print(f"\n{started.stopwatch.table()}")
        if request.session.testsfailed:
            started.keep_logs(TEST_LOGS / "node")

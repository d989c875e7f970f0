"""A test that hangs ends its process, which prints what every thread was doing: ``faulthandler_timeout`` and
``faulthandler_exit_on_timeout`` in pyproject.toml say when. Here is what may take as long as it needs.
"""

from __future__ import annotations

import faulthandler

import pytest


def wait_without_limit() -> None:
    """From now on the test that is running may take as long as it needs."""
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set no limit to tests that run on request because they take long."""
    if item.get_closest_marker("nightly"):
        wait_without_limit()

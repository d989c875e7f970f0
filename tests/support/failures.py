"""Failures are printed when they happen: pytest prints them at the end, which a run in CI may not reach."""

from __future__ import annotations

import time

import pytest


class _Failures:
    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._started = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            where = "" if report.when == "call" else f", {report.when}"
            self._reporter.ensure_newline()
            self._reporter.write_line(
                f"failed after {time.monotonic() - self._started:.0f} s of the run: {report.nodeid}{where}"
            )
            self._reporter.write_line(report.longreprtext[-2000:])


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """In the process that is told of all tests, where several run them."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(_Failures(reporter), "failures")

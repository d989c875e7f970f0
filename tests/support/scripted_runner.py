"""``tidegate.jobs.runner.Runner`` by script, held to the real ones by ``tests/contract``."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus


class ScriptedRunner:
    """A runner whose jobs do what ``work`` says, as they start; they run until ``end``.

    What ``work`` raises, the start raises, and nothing has been started. ``started``, ``stopped``: names of launches
    that were begun, and that were asked to stop.
    """

    engine = "Direct"

    def __init__(self, work: Callable[[Launch], None]) -> None:
        self.work = work
        self.states: dict[str, RunnerStatus] = {}
        self.started: list[str] = []
        self.stopped: list[str] = []

    def end(self, launch: Launch, message: str = "") -> None:
        """The job ends by itself."""
        self.states[launch.name] = RunnerStatus(RunnerState.EXITED, message)

    def start(self, launch: Launch) -> None:
        if launch.name in self.states:
            return
        self.started.append(launch.name)
        self.states[launch.name] = RunnerStatus(RunnerState.RUNNING)
        try:
            self.work(launch)
        except Exception:
            del self.states[launch.name]
            raise

    def status(self, launch: Launch) -> RunnerStatus:
        return self.states.get(launch.name, RunnerStatus(RunnerState.LOST))

    def stop(self, launch: Launch) -> None:
        self.stopped.append(launch.name)
        if self.status(launch).state is RunnerState.RUNNING:
            self.end(launch, "the operator stopped it")

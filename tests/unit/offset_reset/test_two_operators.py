"""Two operators at once: there is no lease between them."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from support.reset_world import T0, ScriptedRunner, World
from tidegate.jobs.runner import Launch, RunnerState, RunnerStatus
from tidegate.kafka.errors import Fenced
from tidegate.kube.ports import Conflict
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.progress import Progress
from tidegate.reset.planning.planner import make_plan
from tidegate.reset.runs import job
from tidegate.reset.store import StaleAttempt
from tidegate.resources.reset import Engine, ResetPhase


class Operators:
    """Two operators at once, each with jobs of its own. The first ``hanging`` jobs hang and hold a transaction open."""

    def __init__(self, world: World, hanging: int) -> None:
        self.world = world
        self.writes: list[Callable[[], None]] = []
        """What each hanging job would do next."""
        self._hanging = hanging
        self.runners = [ScriptedRunner(self._work), ScriptedRunner(self._work)]
        self.reconcilers = []
        for runner in self.runners:
            world.engines = {Engine.DIRECT: runner}
            self.reconcilers.append(world.fresh_reconciler())

    def _work(self, launch: Launch) -> None:
        world = self.world
        store = DirectoryRunStore(world.folder / "runs", launch.store.rpartition("/")[2], clock=world.clock)
        if len(self.writes) == self._hanging:
            job.execute(store, world.kafka, world.clock)
            for runner in self.runners:
                if launch.name in runner.states:
                    runner.states[launch.name] = RunnerStatus(RunnerState.EXITED)
            return
        attempt = store.begin_attempt()
        run = store.load()
        if run.plan is None:
            job.plan_run(store, attempt, world.clock, lambda request, now, _: make_plan(request, world.kafka, now))
        writer = world.kafka.writer("payments", transaction_timeout_s=60)
        transaction = writer.transaction().__enter__()
        transaction.send("payments", {T0: 10})

        def commit_and_say_so() -> None:
            transaction.commit()
            store.append(Progress(ResetPhase.VERIFYING, world.clock.now(), attempt), attempt=attempt)

        self.writes.append(commit_and_say_so)

    def passes(self, until: Callable[[], bool], limit: int = 200) -> None:
        """In turns, until then."""
        for number in range(limit):
            if until():
                return
            with contextlib.suppress(Conflict):
                reconciler = self.reconcilers[number % 2]
                done = asyncio.run(reconciler.reconcile(self.world.body))
                self.world.clock.sleep(min(done.again_after_s, 5))
        raise AssertionError(f"no end after {limit} passes: {self.world.kube.log}")


def test_of_two_operators_at_once_one_ends_the_run_and_the_others_job_is_refused(world: World) -> None:
    """There is no lease between them: Kafka fences the earlier transaction, the run's document the earlier attempt."""
    operators = Operators(world, hanging=1)
    world.ask()

    operators.passes(until=lambda: bool(world.body.get("status", {}).get("finishedAt")))

    assert [len(runner.started) for runner in operators.runners] == [1, 1]
    assert world.kube.log.count("create") == 1
    assert (world.reset["phase"], world.offset) == ("Succeeded", 10)
    world.kafka.commit_directly("payments", {T0: 77})
    [go_on] = operators.writes
    with pytest.raises((Fenced, StaleAttempt)):
        go_on()
    assert world.offset == 77


def test_two_operators_whose_jobs_all_hang_take_each_other_for_dead_and_end_the_run_with_nothing_changed(
    world: World,
) -> None:
    operators = Operators(world, hanging=100)
    world.ask()

    operators.passes(until=lambda: bool(world.body.get("status", {}).get("finishedAt")))

    assert len(operators.writes) == 5  # as many as a run may have
    assert world.condition("Complete")["reason"] == "JobFailed"
    assert (world.reset["phase"], world.offset) == ("Failed", 50)
    for go_on in operators.writes:
        with pytest.raises((Fenced, StaleAttempt)):
            go_on()
    assert world.offset == 50

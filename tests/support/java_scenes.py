"""Scenes of gates that only Java's clients have, or that need their commands; as those of `gate_scenes`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, cast

import pytest
from confluent_kafka import Producer

from support.gate_scenes import Start, is_whole
from support.gated_applications import PATIENCE_S, Application, Scene
from support.java_applications import Java, JavaApplication, JavaError, JavaProcess, Partition
from tidegate.clock import SystemClock
from tidegate.kafka.connection import Connection
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromFile, PartitionOffset
from tidegate.reset.runs import job
from tidegate.resources.reset import ResetPhase

COOPERATIVE: Final = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
COMMITS: Final = ("auto", "position", "position-async", "manual", "manual-async", "transaction", "transaction-of-group")
LISTENERS: Final = (
    ("record-listener", "manual-immediate"),
    ("batch-listener", "transaction"),
    ("record-listener", "auto"),
    ("record-listener", "record"),
    ("record-listener", "transaction"),
    ("batch-listener", "batch"),
    ("batch-listener", "manual"),
)
"""Spring Kafka's, each with a way in which it commits."""
KINDS_OF_GROUPS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "eager": ("classic", {}),
    "cooperative": ("classic", {"partition.assignment.strategy": COOPERATIVE}),
    "KIP-848": ("consumer", {}),
}
"""Their protocol, and what else is set in their clients."""
SOON_S: Final = 15.0


def commits_of(java: Java) -> tuple[str, ...]:
    """How an application of this client may commit."""
    return tuple(how for how in COMMITS if how != "transaction-of-group" or java.version < (4,))


def its_commits_of_a_paused_partition_change_nothing(scene: Scene, start: Start, how: str) -> None:
    """``how``: of `COMMITS`, but for ``auto``. The other partition's offset in the same commit is kept."""
    application = cast("JavaApplication", start(commit="none"))
    zero, one = Partition(scene.topic, 0), Partition(scene.topic, 1)
    scene.until(lambda: len(scene.offsets(0)) > 30 and len(scene.offsets(1)) > 30, "it reads")
    application.commit(how, {zero: 9, one: 9})
    scene.until(lambda: (scene.committed(0) or 0) >= 9, "what is open can be committed")
    ack = scene.close_gate(drain_s=0.3)
    scene.reset(5)
    assert ack.offset >= 9
    scene.flowing(1)

    before = scene.committed(1) or 0
    application.commit(how, {zero: 20, one: 20})
    scene.until(lambda: (scene.committed(1) or 0) > before, "the other partition's is committed")
    with_the_other = scene.committed(0)
    if not how.startswith("position"):
        answered = application.commits_told
        application.commit(how, {zero: 21})
        scene.until(lambda: application.commits_told > answered, "the client says that it is committed")
    alone = scene.committed(0)
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0)
    application.stop()

    assert with_the_other == alone == 5
    assert scene.offsets(0, released_at)[0] == 5
    assert application.commit_errors == []


def it_is_woken_while_it_is_paused(scene: Scene, start: Start) -> None:
    """``wakeup`` ends one poll, and that only."""
    application = cast("JavaApplication", start())
    scene.flowing()
    scene.close_gate()
    for count in (1, 2):
        application.call("wakeup")
        scene.until(lambda count=count: application.woken == count, "a poll is woken")  # type: ignore[misc]
        scene.flowing(1)
    assert application.woken == 2
    scene.release()
    scene.flowing(0)
    application.stop()
    assert is_whole(scene.offsets(0))
    assert is_whole(scene.offsets(1))


def an_answer_that_its_client_has_kept_is_not_where_it_goes_on(scene: Scene, start: Start) -> None:
    """The application asks for the committed offset shortly before a reset, and does not wait for the answer, which the
    client gives to whoever asks next."""
    application = cast("JavaApplication", start(commit="manual"))
    scene.flowing()
    scene.close_gate()
    with pytest.raises(JavaError, match="TimeoutException"):
        application.call("committed", partitions=[[scene.topic, 0]], timeout_ms=0)
    for _ in range(3):
        scene.flowing(1)
    scene.reset(5)
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0)
    application.stop()
    assert scene.offsets(0, released_at)[0] == 5


def a_batch_in_hand_is_waited_for(scene: Scene, start: Start) -> None:
    application = cast("JavaApplication", start(commit="manual"))
    scene.flowing()
    application.call("keep")
    scene.until(lambda: application.call("in_hand"), "a batch is in hand")
    epochs = {partition: scene.hold(partition) for partition in (0, 1)}
    in_hand = scene.given()[-1].partition
    with pytest.raises(AssertionError, match="an ack of epoch"):
        scene.acked(epochs[in_hand], in_hand, seconds=1.0)
    application.call("let_go")
    acks = {partition: scene.acked(epoch, partition) for partition, epoch in epochs.items()}
    for partition, ack in acks.items():
        scene.delivered_up_to(ack, partition)
        assert ack.offset == scene.committed(partition), partition
        scene.release(partition)
    scene.flowing(0, 1)
    application.stop()
    assert is_whole(scene.offsets(0))
    assert is_whole(scene.offsets(1))


def a_long_poll_delays_neither_the_ack_nor_the_release(scene: Scene, start: Start) -> None:
    """Nothing is written to the topic, and each poll may take as long as it wants."""
    produce(scene, 20)
    application = start(poll_ms=600_000)
    scene.until(lambda: len(scene.given()) == 40, "all is read")
    ack = scene.acked(scene.hold(), seconds=SOON_S)
    scene.reset(5)
    released_at = time.monotonic()
    scene.release()
    scene.until(lambda: len(scene.offsets(0, released_at)) == 15, "it goes on", SOON_S)
    application.stop()
    assert ack.offset == 20
    assert scene.offsets(0, released_at) == list(range(5, 20))
    assert scene.offsets(1) == list(range(20))


def produce(scene: Scene, count: int) -> None:
    """To each of the two partitions."""
    producer = Producer({"bootstrap.servers": scene.bootstrap, "linger.ms": 5})
    for _ in range(count):
        for partition in (0, 1):
            producer.produce(scene.topic, b"x", partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def a_listener_is_paused_and_reset(scene: Scene, start: Start) -> None:
    """Of Spring Kafka: also beside the container's own pause."""
    application = start()
    scene.until(lambda: len(scene.offsets()) > 30, "it reads")
    ack = scene.close_gate()
    acked_at = time.monotonic()
    for _ in range(3):
        scene.flowing(1)
    scene.is_still(ack, acked_at)
    target = ack.offset - 20
    scene.reset(target)
    zero = Partition(scene.topic, 0)
    application.ask(lambda c: c.pause(zero))
    scene.release()
    scene.acked(ack.epoch + 1)
    scene.flowing(1)
    assert scene.offsets(0, acked_at) == []
    application.ask(lambda c: c.resume(zero))
    scene.flowing(0)
    scene.until(lambda: (scene.committed() or 0) > ack.offset, "it commits what it has read again, and more")
    application.stop()
    again = scene.offsets(0, acked_at)
    assert again[0] == target
    assert is_whole(again)
    assert is_whole(scene.offsets(1))


def its_commits_go_on_after_resets(scene: Scene, start: Start) -> None:
    """To an earlier and to a later offset, where nobody writes: what it commits comes to the end all the same, not
    only once it is past the place at which it was before."""
    application = at_the_end(scene, start)
    ack = scene.close_gate()
    scene.write(10, 1)
    scene.until(lambda: scene.committed(1) == 210, "the other partition goes on")
    assert ack.offset == scene.committed() == len(scene.offsets()) == 200
    _goes_on_at(scene, 50, 200)
    scene.close_gate()
    scene.write(200)
    _goes_on_at(scene, 320, 400)
    scene.write(30)
    scene.until(lambda: scene.committed() == 430, "it commits what is written later")
    application.stop()
    assert scene.offsets(0) == [*range(200), *range(50, 200), *range(320, 430)]
    assert scene.offsets(1) == list(range(210))
    assert scene.committed() == 430


def _goes_on_at(scene: Scene, target: int, end: int) -> None:
    """The partition that is paused is reset and released."""
    scene.reset(target)
    released_at = time.monotonic()
    scene.release()
    scene.until(lambda: scene.offsets(0, released_at) == list(range(target, end)), f"{target} to {end} are read")
    scene.until(lambda: scene.committed() == end, lambda: f"{end} is committed, not {scene.committed()}", SOON_S)


def its_commits_go_on_after_a_run(scene: Scene, start: Start, folder: Path) -> None:
    """Nobody in it runs the agent: a run, as the operator executes it, moves the partition by a rebalance."""
    application = at_the_end(scene, start)
    began = time.monotonic()
    result = reset_by_a_run(scene, 50, folder)
    scene.until(lambda: scene.offsets(0, began) == list(range(50, 200)), "all from the target on is read")
    scene.until(lambda: scene.committed() == 200, lambda: f"200 is committed, not {scene.committed()}", SOON_S)
    application.stop()
    assert result.phase is ResetPhase.SUCCEEDED, result


def its_commits_go_on_only_after_a_restart(scene: Scene, start: Start, folder: Path) -> None:
    """As `its_commits_go_on_after_a_run`, of one that commits nothing before the place at which it was: the run ends
    all the same, and says that nobody is known to read from the target."""
    application = at_the_end(scene, start)
    began = time.monotonic()
    result = reset_by_a_run(scene, 50, folder)
    scene.until(lambda: scene.offsets(0, began) == list(range(50, 200)), "all from the target on is read")
    scene.write(10, 1)
    scene.until(lambda: scene.committed(1) == 210, "it commits the other partition, later than that")
    while_it_ran = scene.committed()
    application.stop()
    restarted_at = time.monotonic()
    restarted = start()
    scene.until(lambda: scene.offsets(0, restarted_at) == list(range(50, 200)), "it begins at the target once more")
    scene.until(lambda: scene.committed() == 200, lambda: f"200 is committed, not {scene.committed()}", SOON_S)
    restarted.stop()
    assert (result.phase, while_it_ran) == (ResetPhase.SUCCEEDED, 50), result
    assert "1 partition(s) are not known to be read from their targets yet" in result.message, result


def at_the_end(scene: Scene, start: Start) -> Application:
    """An application that has read and committed 200 records of each partition."""
    for partition in (0, 1):
        scene.write(200, partition)
    application = start()
    # A client that commits by itself commits what the application has not been given yet.
    scene.until(lambda: len(scene.given()) == 400, "it has read all")
    scene.until(lambda: [scene.committed(0), scene.committed(1)] == [200, 200], "it has committed all")
    return application


def reset_by_a_run(scene: Scene, offset: int, folder: Path) -> RunResult:
    """Partition 0 goes there; ``folder`` gets the run's document."""
    store = DirectoryRunStore(folder, "run")
    target = FromFile((PartitionOffset(scene.topic, 0, offset),), "scene")
    connection = Connection(scene.bootstrap, control_topic=scene.settings.control_topic)
    store.create(RunRequest(f"{scene.group}/run", "run", scene.group, connection, (), target))
    result = job.execute(store, scene.client, SystemClock())
    assert result is not None
    return result


Launch = Callable[[], JavaProcess]
"""A JVM with the agent that has not been started yet."""

KilledPlay = Callable[[Scene, Launch], None]


def one_that_dies_while_it_drains_leaves_the_gate_to_the_next(scene: Scene, launch: Launch) -> None:
    """Its batch is in hand when it is killed."""
    with ExitStack() as stack:
        first, second = stack.enter_context(launch()), stack.enter_context(launch())
        dying = start_in(scene, first, commit="manual")
        scene.until(lambda: (scene.committed() or 0) > 10, "it reads and commits")
        dying.call("keep")
        scene.until(lambda: dying.call("in_hand"), "a batch is in hand")
        epoch = scene.hold(drain_s=60.0)
        first.kill()
        dying.gone()
        last = scene.offsets()[-1]
        killed_at = time.monotonic()
        next_one = start_in(scene, second, commit="manual")
        ack = scene.acked(epoch)
        scene.flowing(1)
        assert scene.offsets(0, killed_at) == []
        assert scene.committed() == ack.offset <= last + 1
        scene.reset(3)
        released_at = time.monotonic()
        scene.release()
        scene.flowing(0)
        next_one.stop()
        assert scene.offsets(0, released_at)[0] == 3
        assert is_whole(scene.offsets(0, released_at))


def one_that_dies_while_it_opens_is_followed_by_one_that_begins_at_the_target(scene: Scene, launch: Launch) -> None:
    with ExitStack() as stack:
        first, second = stack.enter_context(launch()), stack.enter_context(launch())
        dying = start_in(scene, first)
        scene.until(lambda: len(scene.offsets()) > 30, "it reads")
        scene.close_gate()
        scene.reset(3)
        released_at = time.monotonic()
        scene.release()
        first.kill()
        dying.gone()
        by_the_first = scene.offsets(0, released_at)
        next_one = start_in(scene, second)
        scene.flowing(0, by=[next_one])
        next_one.stop()
        by_the_second = scene.offsets(0, released_at, by=[next_one])
    assert (by_the_first + by_the_second)[0] == 3
    assert is_whole(by_the_first)
    assert is_whole(by_the_second)
    assert by_the_second[0] <= (by_the_first[-1] + 1 if by_the_first else 3)


def start_in(scene: Scene, jvm: JavaProcess, **job: object) -> JavaApplication:
    """An application in this JVM."""
    return cast("JavaApplication", scene.application(jvm.application, **job))


def only_the_group_that_is_held_stands_still(scene: Scene, other: Scene, start: Start, start_other: Start) -> None:
    """Two groups in one JVM, of one topic."""
    applications: list[Application] = [start(), start_other()]
    scene.flowing()
    other.flowing()
    ack = scene.close_gate()
    acked_at = time.monotonic()
    other.flowing(0, 1)
    scene.flowing(1)
    scene.is_still(ack, acked_at)
    scene.reset(5)
    released_at = time.monotonic()
    scene.release()
    scene.flowing(0)
    for application in applications:
        application.stop()
    assert scene.offsets(0, released_at)[0] == 5
    assert is_whole(other.offsets(0))
    assert is_whole(other.offsets(1))

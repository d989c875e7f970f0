"""How a mirror's partitions are shared among tasks, when its job is replaced, and what is told of it. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from support.fake_kafka import FakeClock
from tidegate.compressed import pack
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import LogBounds, Topic, TopicPartition
from tidegate.offset_mirror.counting import counted, state_of
from tidegate.offset_mirror.course import Course
from tidegate.offset_mirror.order import (
    BadOrder,
    MirrorOrder,
    decode_document,
    decode_order,
    digest,
    encode_document,
    encode_order,
    name_of_document,
    name_of_launch,
    number_of_launch,
)
from tidegate.offset_mirror.partitions import partitions_of
from tidegate.offset_mirror.replacing import Begin, Follow, Replace, decide
from tidegate.offset_mirror.report import FIRST_ID, BadReport, Report, Row, decode_report, encode_report
from tidegate.offset_mirror.reported import ReportedCopying
from tidegate.offset_mirror.shares import Shares, shares
from tidegate.offset_mirror.topics import Copied
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_mirror import CopyState, MirroredTopicStatus
from tidegate.resources.spark import ExecutorSpec, SparkSpec
from tidegate.versions import NewerVersion

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def copied(name: str, partitions: int, **changes: Any) -> Copied:
    sides = Topic(name, f"{name}-here", partitions), Topic(name, f"{name}-there", partitions)
    return replace(Copied(*sides, compacts=False, filler_key=None), **changes)


def order(**changes: Any) -> MirrorOrder:
    return replace(
        MirrorOrder(
            namespace="ns",
            name="m",
            uid="uid",
            launch="m-mirror-1",
            source=Connection("here:9092"),
            target=Connection("there:9092"),
            clusters=("here", "there"),
            settings="s",
            topics=(copied("t", 7), copied("u", 3, compacts=True, filler_key=b"tidegate.filler", adopted=(4, 5, 6))),
            left_out=(TopicPartition("u", 1),),
            tasks=4,
            max_fill=10,
            bytes_per_second=900,
            former_ids=(3,),
        ),
        **changes,
    )


# --- shares -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "spark", "cores", "expected"),
    [
        (1, None, 1, Shares(1, 1)),
        (50, None, 1, Shares(1, 1)),
        (51, None, 1, Shares(2, 2)),
        (400, None, 2, Shares(8, 4)),
        (100_000 // 10, None, 1, Shares(20, 20)),
        (400, SparkSpec(executor=ExecutorSpec(instances=3)), 1, Shares(3, 3)),
        (400, SparkSpec(executor=ExecutorSpec(instances=3, cores=4)), 1, Shares(12, 3)),
        (2, SparkSpec(executor=ExecutorSpec(instances=30)), 1, Shares(2, 2)),
        (3, SparkSpec(executor=ExecutorSpec(cores=2)), 1, Shares(2, 1)),
        (100_000, SparkSpec(executor=ExecutorSpec(instances=1000, cores=32)), 1, Shares(200, 7)),
    ],
)
def test_tasks_and_executors_grow_with_the_partitions(
    partitions: int, spark: SparkSpec | None, cores: int, expected: Shares
) -> None:
    settings = SparkSettings(executor_cores=cores)

    assert shares(partitions, spark, settings, in_pods=True) == expected


@pytest.mark.parametrize(
    ("master", "tasks"), [("local[2]", 2), ("local", 1), ("local[7]", 5), ("local[3,2]", 3), ("yarn", 1)]
)
def test_on_one_machine_there_are_as_many_tasks_as_can_run_at_once(master: str, tasks: int) -> None:
    assert shares(5, None, SparkSettings(local_master=master), in_pods=False) == Shares(tasks, None)


def test_more_partitions_than_tasks_can_tell_of_are_refused() -> None:
    refused = shares(50_000, None, SparkSettings(), in_pods=True)
    assert isinstance(refused, Refusal)
    assert refused.reason == "TooManyPartitions"
    assert "spec.spark.executor.instances" in refused.message
    assert isinstance(shares(40_000, None, SparkSettings(), in_pods=True), Shares)


def test_each_partition_is_one_tasks_and_what_is_left_out_is_nobodys() -> None:
    given = order()
    tally = Counter(partition for place in range(given.tasks) for partition in given.share(place))

    assert set(tally.values()) == {1}
    assert tally.keys() == partitions_of(given.topics).keys() - {TopicPartition("u", 1)}
    sizes = [len(given.share(place)) for place in range(given.tasks)]
    assert max(sizes) - min(sizes) <= 1


def test_tasks_together_are_no_faster_than_the_limit() -> None:
    given = order()
    rates = [given.rate(place) or 0 for place in range(given.tasks)]

    assert sum(rates) <= 900
    assert min(rates) >= 200
    assert order(bytes_per_second=None).rate(0) is None


# --- orders -----------------------------------------------------------------------------------------------------------


def test_an_order_is_read_as_it_was_written() -> None:
    given = order()

    assert decode_document(encode_document(given)) == given
    assert digest(decode_order(encode_order(given))) == digest(given)
    assert digest(replace(given, launch="m-mirror-2")) != digest(given)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"order": "?"},
        {"order": pack(b"[]"), "launch": "m-mirror-1"},
        {"order": pack(encode_order(order(tasks=0))), "launch": "m-mirror-1"},
        {"order": pack(encode_order(order(tasks=11))), "launch": "m-mirror-1"},
        {"order": pack(encode_order(order(max_fill=-1))), "launch": "m-mirror-1"},
        {"order": pack(encode_order(order(topics=(copied("t", 100_001),)))), "launch": "m-mirror-1"},
        {"order": pack(encode_order(order())), "launch": "another"},
    ],
)
def test_what_is_no_order_is_refused(data: dict[str, str]) -> None:
    with pytest.raises(BadOrder):
        decode_document(data)


def test_an_order_of_a_newer_version_is_left_alone() -> None:
    with pytest.raises(NewerVersion):
        decode_document({**encode_document(order()), "version": "2"})
    with pytest.raises(NewerVersion):
        decode_report({**encode_report(Report("m-mirror-1")), "version": "2"})


def test_launches_are_numbered() -> None:
    document = name_of_document("orders.to-new", "uid")
    assert number_of_launch(document, name_of_launch(document, 12)) == 12
    assert len(name_of_launch(document, 9_999_999)) <= 63 - len("-driver")
    assert [number_of_launch(document, name) for name in ("", document, "other-3", f"{document}-x")] == [0] * 4


GROWN = order(topics=(copied("t", 8), order().topics[1]))


@pytest.mark.parametrize(
    ("ordered", "wanted", "named", "fresh", "settled", "since_s", "expected"),
    [
        (None, order(), "", "", True, 0, Replace),
        (order(), order(launch=""), "m-mirror-1", "", True, 0, Follow),
        (order(), order(launch=""), "", "m-mirror-1", True, 0, Begin),
        # One that was ended: the same name would be that of its reports.
        (order(), order(launch=""), "", "", True, 0, Replace),
        (order(), order(launch=""), "m-mirror-9", "", True, 0, Replace),
        (order(), GROWN, "m-mirror-1", "", False, 5, Follow),
        (order(), GROWN, "m-mirror-1", "", False, 61, Replace),
        (order(), GROWN, "m-mirror-1", "", True, 5, Replace),
        (order(), order(tasks=3), "m-mirror-1", "", False, 5, Follow),
        # What must not be copied any more does not wait.
        (order(), order(left_out=(P, TopicPartition("u", 1))), "m-mirror-1", "", False, 5, Replace),
        (order(), order(topics=order().topics[:1], left_out=()), "m-mirror-1", "", False, 5, Replace),
        (order(), order(target=Connection("other:9092")), "m-mirror-1", "", False, 5, Replace),
        (order(), order(settings="another"), "m-mirror-1", "", False, 5, Replace),
        (GROWN, order(), "m-mirror-1", "", False, 5, Replace),
    ],
)
def test_when_a_job_is_replaced(
    ordered: MirrorOrder | None,
    wanted: MirrorOrder,
    named: str,
    fresh: str,
    settled: bool,
    since_s: float,
    expected: type[object],
) -> None:
    assert isinstance(decide(ordered, wanted, named, fresh, settled=settled, since_s=since_s), expected)


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_report_is_read_as_it_was_said() -> None:
    rows = {
        P: Row(5, 7),
        Q: Row(None, None, "the target refuses", drifted=False),
        TopicPartition("u", 3): Row(9, 7, "somebody else wrote", drifted=True),
        TopicPartition("v", 0): Row(9, 7, trouble="no leader"),
    }
    for wants in (None, FIRST_ID, 7):
        report = Report("m-mirror-1", 3, 17, rows, wants, 100, 2000, "trouble")
        assert decode_report(encode_report(report)) == report


def test_a_report_of_a_whole_share_is_small_however_much_there_is_to_say() -> None:
    rows = {TopicPartition("t" * 249, n): Row(2**62, 2**40, "x" * 5000) for n in range(2000)}
    read = decode_report(encode_report(Report("m-mirror-1", rows=rows)))

    assert len(encode_report(Report("m-mirror-1", rows=rows))["report"]) < 500_000
    assert all(row.stopped for row in read.rows.values())


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"attempt":1}',
        '{"attempt":-1,"beat":0,"wantsIdAfter":null,"records":0,"size":0,"trouble":"","rows":[]}',
        '{"attempt":1,"beat":0,"wantsIdAfter":"x","records":0,"size":0,"trouble":"","rows":[]}',
        '{"attempt":1,"beat":0,"wantsIdAfter":null,"records":0,"size":0,"trouble":"","rows":[["t",0,-5,null,0,""]]}',
        '{"attempt":1,"beat":0,"wantsIdAfter":null,"records":0,"size":0,"trouble":"","rows":[["t",0,5,null,3,""]]}',
        '{"attempt":1,"beat":0,"wantsIdAfter":null,"records":0,"size":0,"trouble":"","rows":[[1,0,5,null,0,""]]}',
    ],
)
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(BadReport):
        decode_report({"launch": "m-mirror-1", "report": pack(text.encode())})


class Followed:
    """A partition of which its task says something, or nothing."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.copying = ReportedCopying(P, self.clock.monotonic)

    def looked(self, source: int, target: int, says: int | None = None, starts: tuple[int, int] = (0, 0)) -> CopyState:
        """A second later; ``says``: up to where the task says that it has copied; ``starts``: of both logs."""
        self.clock.sleep(1)
        if says is not None:
            self.copying.heard(Row(offset=says), self.clock.monotonic())
        self.copying.lies(LogBounds(starts[1], target))
        self.copying.saw(LogBounds(starts[0], source), self.copying.offset, self.clock.monotonic())
        return state_of(self.copying.seen(), self.clock.monotonic(), seeded=True)


def test_silence_makes_a_copy_older_though_its_source_does_not_grow() -> None:
    followed = Followed()
    assert followed.looked(10, 10, says=10) is CopyState.IN_SYNC
    states = [followed.looked(10, 10) for _ in range(15)]

    assert states[:9] == [CopyState.IN_SYNC] * 9
    assert states[-4:] == [CopyState.LAGGING] * 4
    assert "no task of the job has reported on it for 15 s" in followed.copying.seen().trouble
    assert followed.looked(10, 10, says=10) is CopyState.IN_SYNC


def test_a_copy_ends_nowhere_before_its_task_and_the_target_have_said_so() -> None:
    followed = Followed()
    assert followed.looked(10, 10) is CopyState.WAITING
    assert followed.copying.seen().trouble == "no task of the job has reported on it yet"
    assert followed.looked(10, 8, says=10) is CopyState.LAGGING
    assert followed.copying.seen().lag == 2


def test_a_source_that_lost_records_does_not_make_a_copy_younger() -> None:
    followed = Followed()
    followed.looked(10, 10, says=10)
    for _ in range(12):
        state = followed.looked(7, 10, says=10)

    assert state is not CopyState.IN_SYNC


def test_a_copy_that_has_what_its_source_has_deleted_is_not_in_sync() -> None:
    followed = Followed()
    assert followed.looked(10, 10, says=10) is CopyState.IN_SYNC
    for _ in range(12):
        state = followed.looked(10, 10, says=10, starts=(4, 0))
    assert state is CopyState.LAGGING

    assert followed.looked(10, 10, says=10, starts=(4, 4)) is CopyState.IN_SYNC


def test_a_copy_that_has_more_than_its_task_has_written_is_not_in_sync() -> None:
    followed = Followed()
    for end in range(10, 40):  # what a task writes is there before it says so
        assert followed.looked(end, end + 1, says=end) is CopyState.IN_SYNC
    for _ in range(20):
        state = followed.looked(39, 40, says=39)
    assert state is CopyState.LAGGING
    says = "the copy ends at offset 40 at the target, and its task has written it up to 39"
    assert says in followed.copying.seen().trouble

    assert followed.looked(40, 40, says=40) is CopyState.IN_SYNC
    assert followed.copying.seen().trouble == ""


def test_more_producer_ids_than_a_status_may_name_are_not_known() -> None:
    """A report can say so. The API server would refuse such a status, which would stay as it is for ever."""
    row = MirroredTopicStatus(name="t", source_id="a", target_id="b", partitions=1001, state=CopyState.WAITING)
    courses = [Course(TopicPartition("t", n), 5, 5, 1.0, producer_id=n) for n in range(1001)]
    [whole] = counted(courses, [row], 1.0).topics
    assert whole.writers is None
    [partial] = counted(courses[:600], [row.model_copy(update={"writers": tuple(range(600, 1200))})], 1.0).topics
    assert partial.writers is None
    [most] = counted(courses[1:], [row.model_copy(update={"partitions": 1000})], 1.0).topics
    assert most.writers == tuple(range(1, 1001))

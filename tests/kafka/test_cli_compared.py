"""``tidegate groups`` beside ``kafka-consumer-groups`` on one cluster: same columns, same rows, same exit codes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from devstack import KafkaCluster, tool_command
from support.kafka_tools import Answer, KafkaTools
from support.operator_process import until
from tidegate.cli.main import main

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
ROOT = Path(__file__).resolve().parents[2]
TOPIC, LONG_TOPIC = "orders", "a-topic-with-a-rather-long-name"
EMPTY, OTHER, CLASSIC, KIP_848, STATIC = "empty-group", "other", "live-classic", "live-848", "live-static"
START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Both:
    """Both programs, against one cluster."""

    bootstrap: str
    state: Path
    tools: KafkaTools

    def ours(self, *arguments: str) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setenv("XDG_STATE_HOME", str(self.state))
            code = main(["groups", "--bootstrap-server", self.bootstrap, *arguments])
        return Answer(code, out.getvalue(), err.getvalue())

    def ours_alone(self, *arguments: str) -> Answer:
        """In a process of its own, as a shell starts it."""
        command = [sys.executable, "-m", "tidegate.cli.main", "groups"]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "operator"), "XDG_STATE_HOME": str(self.state)}
        return _answer([*command, "--bootstrap-server", self.bootstrap, *arguments], environment)

    def theirs(self, *arguments: str) -> Answer:
        return self.tools.call(TOOL, "--bootstrap-server", self.bootstrap, *arguments)

    def theirs_alone(self, *arguments: str) -> Answer:
        """In a JVM of its own, as the script starts it."""
        return _answer([*tool_command(TOOL), "--bootstrap-server", self.bootstrap, *arguments], dict(os.environ))


def _answer(command: Sequence[str], environment: dict[str, str]) -> Answer:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    return Answer(done.returncode, done.stdout, done.stderr)


class _Live:
    """A member that polls and commits nothing more."""

    def __init__(self, bootstrap: str, group: str, **settings: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": "app",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **settings,
            }
        )
        self._consumer.subscribe([TOPIC])
        until(lambda: self._consumer.poll(0.1) is None and len(self._consumer.assignment()) == 3, "three partitions")
        self._consumer.commit(offsets=[TopicPartition(TOPIC, 1, 7)], asynchronous=False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._consumer.poll(0.1)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """A cluster of its own: the listing is compared, too."""
    with KafkaCluster.start() as cluster, KafkaTools() as tools:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, 3, 1), NewTopic(LONG_TOPIC, 1, 1)]).values():
            made.result(20)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(90):
            producer.produce(TOPIC, b"x", partition=number % 3, timestamp=START_MS + number * 1000)
        assert producer.flush(20) == 0
        for group, offsets in ((EMPTY, {0: 5, 1: 7, 2: 30}), (OTHER, {0: 1})):
            with closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})) as consumer:
                wanted = [TopicPartition(TOPIC, p, o) for p, o in offsets.items()]
                consumer.commit(offsets=wanted, asynchronous=False)
        members = [
            _Live(cluster.bootstrap, CLASSIC),
            _Live(cluster.bootstrap, KIP_848, **{"group.protocol": "consumer"}),
            _Live(cluster.bootstrap, STATIC, **{"group.instance.id": "instance-1"}),
        ]
        try:
            yield Both(cluster.bootstrap, tmp_path_factory.mktemp("state"), tools)
        finally:
            for member in members:
                member.close()


@pytest.mark.parametrize(
    "arguments",
    [
        f"--describe --group {KIP_848} --offsets --verbose",
        "--describe --group nobody-knows-it",
        "--reset-offsets --group empty-group --all-topics --to-current --export --dry-run",
        "--list --state bogus",
        "--no-such-option",
    ],
)
def test_a_process_of_many_calls_says_what_one_of_its_own_says(both: Both, arguments: str) -> None:
    theirs, alone = both.theirs(*arguments.split()), both.theirs_alone(*arguments.split())
    ours, ours_alone = both.ours(*arguments.split()), both.ours_alone(*arguments.split())

    assert (theirs.code, theirs.out) == (alone.code, alone.out)
    assert _without_order(theirs.err) == _without_order(alone.err)
    assert ours == ours_alone


def _without_order(errors: str) -> list[list[str]]:
    """Without what differs from one JVM to the next: a hash set's order, and by which methods ``main`` was called."""
    lines = [line for line in errors.splitlines() if not line.startswith("\tat ")]
    return [sorted(line.replace(",", "").split()) for line in lines]


@pytest.mark.parametrize(
    ("group", "view"),
    [
        *((group, view) for group in (EMPTY, KIP_848) for view in ("--offsets", "--members", "--state")),
        (KIP_848, "--offsets --verbose"),
        (CLASSIC, "--state"),
        (STATIC, "--offsets"),
        (STATIC, "--members"),
    ],
)
def test_a_description_is_the_tools_to_the_character(both: Both, group: str, view: str) -> None:
    arguments = ["--describe", "--group", group, *view.split()]

    ours, theirs = both.ours(*arguments), both.theirs(*arguments)

    assert ours.out == theirs.out
    assert (ours.code, ours.err) == (theirs.code, theirs.err)


@pytest.mark.parametrize(
    ("group", "view"), [(CLASSIC, "--state"), (KIP_848, "--members"), (KIP_848, "--state"), (STATIC, "--members")]
)
def test_verbose_columns_are_the_tools_but_for_epochs(both: Both, group: str, view: str) -> None:
    arguments = ["--describe", "--group", group, view, "--verbose"]

    ours, theirs = both.ours(*arguments), both.theirs(*arguments)

    header, *rows = [line for line in ours.out.splitlines() if line]
    their_header, *their_rows = [line for line in theirs.out.splitlines() if line]
    assert header == their_header
    assert len(rows) == len(their_rows)
    epochs = [i for i, name in enumerate(_columns(header)) if name.endswith("EPOCH")]
    for row, their_row in zip(map(str.split, rows), map(str.split, their_rows), strict=True):
        shift = len(row) - len(_columns(header))  # the coordinator's column has a blank in it
        for column in epochs:
            row[column + shift] = their_row[column + shift] = "epoch"
        assert row == their_row


def _columns(header: str) -> list[str]:
    return header.replace("COORDINATOR (ID)", "COORDINATOR").split()


def test_all_groups_are_described_as_the_tool_does(both: Both) -> None:
    arguments = ["--describe", "--all-groups"]

    ours, theirs = both.ours(*arguments), both.theirs(*arguments)

    assert ours.out == theirs.out
    assert ours.code == theirs.code


@pytest.mark.parametrize(
    "arguments",
    [
        "--list",
        "--list --state",
        "--list --state stable,Empty",
        "--list --type",
        "--list --type consumer --state",
        "--reset-offsets --group empty-group --all-topics --to-earliest --dry-run",
        "--reset-offsets --group empty-group --group other --all-topics --to-latest --dry-run",
        "--reset-offsets --group empty-group --topic orders:0,1 --topic a-topic-with-a-rather-long-name --to-offset 99 "
        "--dry-run",
        "--reset-offsets --group empty-group --topic orders --shift-by -3 --dry-run",
        "--reset-offsets --group other --topic orders --to-current --dry-run",
        "--reset-offsets --group empty-group --topic orders --to-datetime 2023-11-14T22:13:30.000 --dry-run",
        "--reset-offsets --group empty-group --topic orders --to-datetime 2023-11-14T22:13:30.000+02:00 --dry-run",
        "--reset-offsets --group nobody-knows-it --topic orders --to-earliest --dry-run",
        "--reset-offsets --group nobody-knows-it --all-topics --to-earliest --dry-run",
        "--reset-offsets --group empty-group --all-topics --to-current --export --dry-run",
        "--reset-offsets --group empty-group --group other --all-topics --to-current --export --dry-run",
    ],
)
def test_listings_and_resets_have_the_tools_columns_and_rows(both: Both, arguments: str) -> None:
    ours, theirs = both.ours(*arguments.split()), both.theirs(*arguments.split())

    assert ours.code == theirs.code == 0
    assert ours.rows == theirs.rows
    assert ours.out.splitlines()[:2] == theirs.out.splitlines()[:2] or "--list" in arguments or "--export" in arguments
    assert len(ours.out) == len(theirs.out)


def test_a_reset_without_execute_warns_in_the_tools_words(both: Both) -> None:
    arguments = ["--reset-offsets", "--group", EMPTY, "--all-topics", "--to-earliest"]

    ours, theirs = both.ours(*arguments), both.theirs(*arguments)

    assert ours.out == theirs.out
    assert ours.err.splitlines()[0] == theirs.err.splitlines()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        "--describe",
        "--list --group x",
        "--list --topic x",
        "--list --state bogus",
        "--describe --group empty-group --topic orders",
        "--describe --group empty-group --members --state",
        "--describe --group empty-group --state Empty",
        "--describe --group empty-group --all-groups",
        "--reset-offsets --topic orders --to-earliest --dry-run",
        "--reset-offsets --group empty-group --to-earliest --dry-run",
        "--reset-offsets --group empty-group --topic orders --to-earliest --execute --dry-run",
        "--reset-offsets --group empty-group --topic orders:x --to-earliest --dry-run",
        "--reset-offsets --group empty-group --topic a:b:c --to-earliest --dry-run",
        "--reset-offsets --group empty-group --topic orders --to-earliest --to-latest --dry-run",
    ],
)
def test_bad_usage_is_refused_in_the_tools_words(both: Both, arguments: str) -> None:
    ours, theirs = both.ours(*arguments.split()), both.theirs(*arguments.split())

    assert ours.code == theirs.code == 1
    assert ours.out == theirs.out == ""
    said = next(line for line in theirs.err.splitlines() if not line.startswith("WARN"))
    # What there is to choose from is named in the order of a hash set.
    assert sorted(ours.err.splitlines()[0].replace(",", "").split()) == sorted(said.replace(",", "").split())


def test_an_export_of_either_is_read_by_the_other(both: Both, tmp_path: Path) -> None:
    arguments = ["--reset-offsets", "--group", EMPTY, "--all-topics", "--to-earliest", "--export", "--dry-run"]
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    ours.write_text(both.ours(*arguments).out.strip() + "\n")
    theirs.write_text(both.theirs(*arguments).out.strip() + "\n")
    read = ["--reset-offsets", "--group", EMPTY, "--dry-run", "--from-file"]

    crossed = both.ours(*read, str(theirs)), both.theirs(*read, str(ours))

    assert crossed[0].out == crossed[1].out
    assert "NEW-OFFSET" in crossed[0].out
    assert ours.read_text() == theirs.read_text()


def test_a_reset_of_an_empty_group_is_what_the_tool_would_have_committed(both: Both) -> None:
    arguments = ["--reset-offsets", "--group", OTHER, "--topic", TOPIC, "--to-offset", "12"]
    planned = both.theirs(*arguments, "--dry-run")

    done = both.ours(*arguments, "--execute")

    assert (done.code, done.out) == (0, planned.out), done.err
    assert (
        both.theirs("--reset-offsets", "--group", OTHER, "--topic", TOPIC, "--to-current", "--dry-run").out == done.out
    )
    both.ours("--reset-offsets", "--group", OTHER, "--topic", TOPIC, "--to-offset", "1", "--execute")


def test_a_live_group_is_planned_where_the_tool_refuses(both: Both) -> None:
    arguments = ["--reset-offsets", "--group", KIP_848, "--topic", TOPIC, "--to-earliest", "--dry-run"]

    ours, theirs = both.ours(*arguments), both.theirs(*arguments)

    assert "Assignments can only be reset if the group" in theirs.out
    assert [line.split() for line in ours.out.split("\n")[2:5]] == [[KIP_848, TOPIC, str(p), "0"] for p in range(3)]


def test_a_group_that_does_not_exist_is_an_error_and_no_failure_as_with_the_tool(both: Both) -> None:
    ours, theirs = (program("--describe", "--group", "nobody-knows-it") for program in (both.ours, both.theirs))

    assert ours.code == theirs.code == 0
    assert ours.out == "\nError: Consumer group 'nobody-knows-it' does not exist.\n"
    assert theirs.out.startswith("\nError: ")


def test_a_command_that_changes_something_and_cannot_ends_with_1(both: Both) -> None:
    arguments = ["--reset-offsets", "--group", EMPTY, "--topic", f"{TOPIC}:9", "--to-earliest"]

    refused = both.ours(*arguments, "--execute")

    assert refused.code == 1
    assert 'The partitions "orders-9" do not exist' in refused.out
    assert both.ours(*arguments, "--dry-run").code == 0

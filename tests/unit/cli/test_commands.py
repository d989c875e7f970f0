"""Whole commands over a Kafka in memory: what is printed, what is changed, how they end."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_details import FakeDetails
from support.fake_kafka import START, FakeKafka
from tidegate.admin.service import Pauses
from tidegate.cli.errors import UsageError
from tidegate.cli.groups import carry_out, connection_of
from tidegate.cli.options import parse_options
from tidegate.cli.releasing import PAUSES_COME_BACK, REPLAYS_MAY_RUN, RESETS_MAY_RUN
from tidegate.cli.resetting import Resetting
from tidegate.cli.screen import Screen
from tidegate.clock import Clock
from tidegate.control.records import Claim, ClaimKey, Hold, HoldKey, Limit, LimitKey
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Fenced, NotAuthorized
from tidegate.kafka.model import GroupType, TopicPartition
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.result import RunResult
from tidegate.reset.runs import job
from tidegate.reset.store import RunStore
from tidegate.resources.reset import ResetPhase

GROUP = "payments"
ORDERS = tuple(TopicPartition("orders", n) for n in range(3))
CONNECTION = Connection("kafka:9092")


@dataclass
class Shell:
    """Runs commands; ``out`` and ``err`` are those of the last one."""

    kafka: FakeKafka
    folder: Path
    details: FakeDetails = field(init=False)
    out: str = ""
    err: str = ""

    def __post_init__(self) -> None:
        self.details = FakeDetails(self.kafka)

    def __call__(self, text: str) -> int:
        options = parse_options(["--bootstrap-server", "kafka:9092", *text.split()])
        screen = Screen(io.StringIO(), io.StringIO())
        if options.scenario is not None:
            resetting = Resetting(options, CONNECTION, self.kafka, self.kafka.clock, screen, self.folder)
            code = resetting.run(options.groups)
        else:
            code = carry_out(options, CONNECTION, self.kafka, self.details, screen)
        assert isinstance(screen.out, io.StringIO)
        assert isinstance(screen.err, io.StringIO)
        self.out, self.err = screen.out.getvalue(), screen.err.getvalue()
        return code

    @property
    def rows(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines() if line.startswith(GROUP)]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    kafka = FakeKafka()
    kafka.create_topic("orders", 3)
    kafka.fill("orders", 100, at=START - timedelta(seconds=100), every=timedelta(seconds=1))
    kafka.commit_directly(GROUP, {ORDERS[0]: 10, ORDERS[1]: 20})
    return Shell(kafka, tmp_path / "runs")


# --- resets -----------------------------------------------------------------------------------------------------------


def test_a_dry_run_changes_nothing_and_says_what_it_would_do(shell: Shell) -> None:
    assert shell(f"--group {GROUP} --topic orders --reset-offsets --to-offset 5 --dry-run") == 0

    assert shell.rows == [[GROUP, "orders", str(p), "5"] for p in range(3)]
    assert shell.kafka.committed(GROUP) == {ORDERS[0]: 10, ORDERS[1]: 20}
    assert "3 of 3 partition(s) move, 20 record(s) read again, 0 skipped" in shell.err
    assert not shell.folder.exists()


def test_a_live_group_is_reset(shell: Shell) -> None:
    consumer = FakeConsumer(shell.kafka, GROUP, ["orders"], managed=True).start()
    shell.kafka.control.ensure()
    shell.kafka.clock.sleep(10)

    code = shell(f"--group {GROUP} --topic orders:0 --reset-offsets --to-earliest --execute")

    assert (code, shell.rows) == (0, [[GROUP, "orders", "0", "0"]]), shell.err
    assert any(began.partition == ORDERS[0] and began.offset == 0 for began in consumer.began[3:])


def test_a_run_that_fails_ends_with_1_and_keeps_its_store(shell: Shell) -> None:
    shell.kafka.fail("fence", NotAuthorized("write transactional id"))

    code = shell(f"--group {GROUP} --topic orders --reset-offsets --to-earliest --execute")

    assert code == 1
    assert "Error: Executing consumer group command failed due to write transactional id" in shell.out
    [document] = shell.folder.glob("*.json")
    result = DirectoryRunStore(shell.folder, document.stem).load().result
    assert result is not None
    assert result.phase is ResetPhase.FAILED


def test_a_run_that_was_cut_off_is_put_back_by_the_next(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(DirectoryRunStore, "finish", cut_off)
    with pytest.raises(MemoryError):
        shell(f"--group {GROUP} --topic orders:0 --reset-offsets --to-offset 77 --execute")
    assert shell.kafka.committed(GROUP)[ORDERS[0]] == 77
    monkeypatch.undo()

    code = shell(f"--group {GROUP} --topic orders:1 --reset-offsets --to-offset 50 --execute")

    assert code == 0, shell.out
    assert "An earlier reset did not finish" in shell.err
    assert shell.kafka.committed(GROUP) == {ORDERS[0]: 10, ORDERS[1]: 50}


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C just before a run that has committed its targets ends."""
    finish = DirectoryRunStore.finish

    def ended(store: DirectoryRunStore, result: RunResult, *, attempt: int) -> None:
        if result.reason == "Applied":
            raise KeyboardInterrupt
        finish(store, result, attempt=attempt)

    monkeypatch.setattr(DirectoryRunStore, "finish", ended)


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_run_is_put_back(shell: Shell) -> None:
    code = shell(f"--group {GROUP} --topic orders:0 --reset-offsets --to-offset 77 --execute")

    assert code == 130
    assert "It was interrupted" in shell.out
    assert "Not begun" not in shell.err
    assert shell.kafka.committed(GROUP)[ORDERS[0]] == 10


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_command_begins_with_no_further_group(shell: Shell) -> None:
    for group in ("another", "late"):
        shell.kafka.commit_directly(group, {ORDERS[0]: 3})
    groups = f"--group another --group {GROUP} --group late"

    code = shell(f"{groups} --topic orders:0 --reset-offsets --to-offset 77 --execute")

    assert code == 130
    assert f"Not begun: {GROUP}, late" in shell.err
    assert [shell.kafka.committed(group)[ORDERS[0]] for group in ("another", GROUP, "late")] == [3, 10, 3]
    assert len(list(shell.folder.glob("*.json"))) == 1


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), NotAuthorized("write the control topic")])
@pytest.mark.usefixtures("interrupted")
def test_a_rollback_that_can_not_be_made_is_said_to_be_left_to_the_next_reset(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise failure

    shell.kafka.commit_directly("late", {ORDERS[0]: 3})
    monkeypatch.setattr(job, "settle", fails)
    screen = Screen(io.StringIO(), io.StringIO())
    options = parse_options(
        [
            "--bootstrap-server",
            "k:9",
            "--group",
            "payments",
            "--group",
            "late",
            "--topic",
            "orders:0",
            "--reset-offsets",
            "--to-offset",
            "77",
            "--execute",
        ]
    )
    resetting = Resetting(options, CONNECTION, shell.kafka, shell.kafka.clock, screen, shell.folder)

    if isinstance(failure, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            resetting.run(options.groups)
    else:
        assert resetting.run(options.groups) == 130

    assert isinstance(screen.out, io.StringIO)
    assert isinstance(screen.err, io.StringIO)
    assert "may still be held. The next reset of the group with --execute, by this user on this machine" in (
        screen.out.getvalue() + screen.err.getvalue()
    )
    assert shell.kafka.committed("late")[ORDERS[0]] == 3


class Gone(io.StringIO):
    """A pipe whose reader was ended by the same Ctrl-C, as `tee` is."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.usefixtures("interrupted")
def test_an_interrupted_run_is_put_back_also_where_nobody_hears_of_it(shell: Shell) -> None:
    command = f"--bootstrap-server k:9 --group {GROUP} --topic orders:0 --reset-offsets --to-offset 77 --execute"
    options = parse_options(command.split())
    resetting = Resetting(options, CONNECTION, shell.kafka, shell.kafka.clock, Screen(Gone(), Gone()), shell.folder)

    assert resetting.run(options.groups) == 130

    assert shell.kafka.committed(GROUP)[ORDERS[0]] == 10


def test_a_run_that_tells_nobody_what_it_waits_for_goes_on(shell: Shell) -> None:
    shell.kafka.control.ensure()
    shell.kafka.control.claim(ClaimKey(GROUP, "1"), Claim("reset/5f/replay", "replay by shop/p", 30_000))
    command = f"--bootstrap-server k:9 --group {GROUP} --topic orders:0 --reset-offsets --to-offset 77 --execute"
    options = parse_options(command.split())
    resetting = Resetting(options, CONNECTION, shell.kafka, shell.kafka.clock, Screen(Gone(), Gone()), shell.folder)

    assert resetting.run(options.groups) == 0

    assert shell.kafka.committed(GROUP)[ORDERS[0]] == 77


def test_a_reset_waits_for_that_of_somebody_else_and_says_whose(shell: Shell) -> None:
    shell.kafka.control.ensure()
    shell.kafka.control.claim(ClaimKey(GROUP, "1"), Claim("reset/5f/replay", "replay by shop/p", 30_000))

    code = shell(f"--group {GROUP} --topic orders:0 --reset-offsets --to-offset 77 --execute")

    assert code == 0, shell.out
    assert shell.err.count("waiting: group payments is taken by another run (replay by shop/p)") == 1
    assert shell.kafka.committed(GROUP)[ORDERS[0]] == 77
    assert not shell.kafka.control.read().claims.queue(GROUP)


def test_two_resets_of_one_group_do_not_run_at_once(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"--group {GROUP} --topic orders:0 --reset-offsets --to-offset 77 --execute"
    codes: list[int] = []
    second = Shell(shell.kafka, shell.folder)
    execute = job.execute

    def meanwhile(store: RunStore, kafka: FakeKafka, clock: Clock) -> RunResult | None:
        codes.append(second(command))
        return execute(store, kafka, clock)

    monkeypatch.setattr(job, "execute", meanwhile)

    assert shell(command) == 0
    assert codes == [1]
    assert "another command is resetting group 'payments' at the moment" in second.out


def test_taken_over_by_another_writer_is_an_error(shell: Shell) -> None:
    shell.kafka.fail("fence", Fenced("another writer has taken over"))

    assert shell(f"--group {GROUP} --topic orders --reset-offsets --to-earliest --execute") == 1
    assert "another writer has taken over" in shell.out


def test_one_group_that_cannot_be_read_does_not_keep_the_others_from_their_reset(shell: Shell) -> None:
    shell.kafka.commit_directly("other", {ORDERS[2]: 1})
    shell.kafka.fail("committed", NotAuthorized("read the committed offsets of group other"))

    code = shell(f"--group other --group {GROUP} --topic orders:0 --reset-offsets --to-offset 3 --execute")

    assert code == 1
    assert (
        "Error: Executing consumer group command failed due to read the committed offsets of group other" in shell.out
    )
    assert shell.rows == [[GROUP, "orders", "0", "3"]]


def test_all_topics_are_those_with_offsets(shell: Shell) -> None:
    shell.kafka.commit_directly(GROUP, {TopicPartition("gone", 0): 3})

    assert shell(f"--group {GROUP} --all-topics --reset-offsets --to-latest --dry-run") == 0

    assert shell.rows == [[GROUP, "orders", "0", "100"], [GROUP, "orders", "1", "100"]]
    assert "Left out, because these partitions no longer exist: gone-0" in shell.err


def test_an_export_is_what_from_file_reads(shell: Shell, tmp_path: Path) -> None:
    shell(f"--group {GROUP} --all-topics --reset-offsets --to-current --export --dry-run")
    assert shell.out == "orders,0,10\norders,1,20\n\n"
    file = tmp_path / "offsets.csv"
    file.write_text(shell.out)

    assert shell(f"--group {GROUP} --reset-offsets --from-file {file} --dry-run") == 0

    assert shell.rows == [[GROUP, "orders", "0", "10"], [GROUP, "orders", "1", "20"]]


def test_several_groups_are_exported_with_their_names(shell: Shell) -> None:
    shell.kafka.commit_directly("other", {ORDERS[2]: 1})

    shell(f"--group {GROUP} --group other --all-topics --reset-offsets --to-current --export --dry-run")

    assert shell.out == "other,orders,2,1\npayments,orders,0,10\npayments,orders,1,20\n\n"


def test_current_offsets_are_exported_as_they_are_also_outside_the_log(shell: Shell) -> None:
    shell.kafka.delete_records(ORDERS[0], 50)

    shell(f"--group {GROUP} --all-topics --reset-offsets --to-current --export --dry-run")

    assert shell.out.splitlines()[0] == "orders,0,10"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--topic nope --to-earliest", "no such topic, or no permission to describe it: nope"),
        ("--topic orders:7,1,9 --to-earliest", 'The partitions "orders-7,orders-9" do not exist'),
        ("--topic orders --to-datetime yesterday", "failed due to Error parsing timestamp"),
        ("--topic orders --by-duration 6h", "failed due to Text cannot be parsed to a Duration"),
    ],
)
def test_what_cannot_be_planned_is_an_error(shell: Shell, arguments: str, said: str) -> None:
    assert shell(f"--group {GROUP} --reset-offsets --execute {arguments}") == 1
    assert said in shell.out
    assert shell(f"--group {GROUP} --reset-offsets --dry-run {arguments}") == 0
    assert shell.kafka.committed(GROUP) == {ORDERS[0]: 10, ORDERS[1]: 20}


def test_a_file_that_is_not_there_is_bad_usage(shell: Shell) -> None:
    with pytest.raises(UsageError, match="--from-file"):
        shell(f"--group {GROUP} --reset-offsets --from-file /nowhere.csv --dry-run")


def test_a_file_without_the_group_is_an_error(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("another,orders,0,3\n")

    assert shell(f"--group {GROUP} --reset-offsets --from-file {file} --execute") == 1
    assert "there is no row for group payments" in shell.out


def test_records_of_the_last_minute_are_found_by_duration(shell: Shell) -> None:
    assert shell(f"--group {GROUP} --topic orders:0 --reset-offsets --by-duration PT1M --dry-run") == 0

    assert shell.rows == [[GROUP, "orders", "0", "40"]]


def test_a_group_that_two_brokers_list_is_reset_once(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As while its coordinator moves."""
    monkeypatch.setattr("tidegate.cli.groups.SystemClock", lambda: shell.kafka.clock)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    listing = shell.details.listing
    monkeypatch.setattr(FakeDetails, "listing", lambda _: (*listing(), *listing()))
    screen = Screen(io.StringIO(), io.StringIO())
    options = parse_options(
        [
            "--bootstrap-server",
            "k:9",
            "--all-groups",
            "--topic",
            "orders:0",
            "--reset-offsets",
            "--shift-by",
            "5",
            "--execute",
        ]
    )

    assert carry_out(options, CONNECTION, shell.kafka, shell.details, screen) == 0

    assert shell.kafka.committed(GROUP)[ORDERS[0]] == 15


# --- pauses -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def owned(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """With a member that runs the agent, on the clock of the Kafka in memory."""
    shell.kafka.control.ensure()
    FakeConsumer(shell.kafka, GROUP, ["orders"], client_id="app", managed=True).start()
    shell.kafka.clock.sleep(10)
    monkeypatch.setattr("tidegate.cli.groups.SystemClock", lambda: shell.kafka.clock)
    return shell


def _held(shell: Shell) -> set[tuple[TopicPartition, str]]:
    return {(key.topic_partition, key.holder) for key, _ in shell.kafka.control.read().of_group(GROUP)}


def test_partitions_are_paused_listed_and_resumed(owned: Shell) -> None:
    assert owned(f"--group {GROUP} --topic orders:0,2 --pause --reason INC-4711") == 0
    assert owned.rows == [[GROUP, "orders", "0", "Paused"], [GROUP, "orders", "2", "Paused"]]

    assert owned(f"--group {GROUP} --paused-partitions") == 0
    assert [row[:4] for row in owned.rows] == [[GROUP, "orders", "0", "Paused"], [GROUP, "orders", "2", "Paused"]]
    assert owned.out.splitlines()[1].split()[-3:] == ["HOST", "CLIENT-ID", "REASON"]
    assert owned.rows[0][8] == "cli"
    assert owned.rows[0][-3:] == ["/127.0.0.1", "app", "INC-4711"]

    assert owned(f"--group {GROUP} --topic orders --resume") == 0
    assert owned.rows[0][3:] == ["Resumed"]
    assert " ".join(owned.rows[1][3:]) == "Was not paused by hand"
    assert _held(owned) == set()


def test_all_topics_are_those_the_group_reads(owned: Shell) -> None:
    assert owned(f"--group {GROUP} --all-topics --pause") == 0
    assert [row[2] for row in owned.rows] == ["0", "1", "2"]

    assert owned(f"--group {GROUP} --all-topics --resume") == 0
    assert [row[3] for row in owned.rows] == ["Resumed"] * 3


def test_a_rebalance_is_waited_for_since_it_hides_what_the_group_reads(owned: Shell) -> None:
    owned.kafka.rebalance(GROUP)
    assert not any(m.assignment for m in owned.kafka.groups([GROUP])[GROUP].members)

    assert owned(f"--group {GROUP} --all-topics --pause") == 0

    assert [row[2:] for row in owned.rows] == [[str(n), "Paused"] for n in range(3)]


def test_an_owner_without_the_agent_is_named_and_its_partition_not_held(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.cli.groups.SystemClock", lambda: shell.kafka.clock)
    FakeConsumer(shell.kafka, GROUP, ["orders"], client_id="old-app").start()
    shell.kafka.clock.sleep(10)

    assert shell(f"--group {GROUP} --topic orders:1 --pause") == 1

    assert "Error: the owner of orders-1 runs no agent" in shell.out
    assert "client old-app" in shell.out
    assert _held(shell) == set()


def test_resuming_names_who_keeps_it_paused(owned: Shell) -> None:
    owned(f"--group {GROUP} --topic orders:0 --pause")
    owned.kafka.control.hold({HoldKey(GROUP, "orders", 0, "pause/conn/inc"): Hold()})

    assert owned(f"--group {GROUP} --topic orders:0 --resume") == 0

    assert "Resumed, stays paused by pause/conn/inc" in owned.out
    assert _held(owned) == {(ORDERS[0], "pause/conn/inc")}


def test_a_group_that_nobody_knows_is_said(owned: Shell) -> None:
    assert owned("--group typo --topic orders:0 --pause") == 0
    assert "Consumer group 'typo' does not exist" in owned.err


@pytest.mark.parametrize("action", ["--pause", "--resume"])
def test_one_group_that_cannot_be_paused_or_resumed_does_not_keep_the_others_from_it(owned: Shell, action: str) -> None:
    owned.kafka.control.hold({HoldKey(group, "orders", 0, "cli"): Hold() for group in ("another", GROUP)})
    owned.kafka.clock.sleep(5)
    owned.kafka.fail("groups" if action == "--pause" else "topics", NotAuthorized("describe it"))

    assert owned(f"--group another --group {GROUP} --topic orders:0 {action}") == 1

    assert "Error: Executing consumer group command failed due to describe it" in owned.out
    assert [row[:3] for row in owned.rows] == [[GROUP, "orders", "0"]]


def test_nothing_to_pause_is_an_error(owned: Shell) -> None:
    assert owned("--group typo --all-topics --pause") == 1
    assert "has no offsets and no partition assigned" in owned.out


def test_a_streams_group_is_refused(owned: Shell) -> None:
    owned.kafka.set_group("wordcount", GroupType.STREAMS)

    assert owned("--group wordcount --topic orders --pause") == 1
    assert "is a streams group" in owned.out


def test_all_groups_with_holds_are_listed(owned: Shell) -> None:
    owned.kafka.control.hold({HoldKey("yet-to-come", "orders", 0, "cli"): Hold()})

    assert owned("--all-groups --paused-partitions") == 0
    assert "yet-to-come" in owned.out
    assert owned(f"--group {GROUP} --paused-partitions") == 0
    assert owned.out == ""
    assert "No partition of consumer group 'payments' is paused." in owned.err


def test_a_partition_that_is_gone_can_be_resumed(owned: Shell) -> None:
    owned.kafka.control.hold({HoldKey(GROUP, "gone", 0, "cli"): Hold()})

    assert owned(f"--group {GROUP} --topic gone --resume") == 0

    assert _held(owned) == set()


@pytest.mark.parametrize(
    "action", ["--paused-partitions", "--all-topics --resume", "--release-all", "--release-all --execute"]
)
@pytest.mark.parametrize("scope", [f"--group {GROUP}", "--all-groups"])
def test_no_hold_that_could_be_seen_is_not_said_to_be_none(shell: Shell, scope: str, action: str) -> None:
    """As where the KafkaConnection names another control topic, or it may not be described."""
    said = (
        "There is no control topic __tidegate on this cluster, or Tidegate is not allowed to read it, so no hold was "
        "seen."
    )

    assert shell(f"{scope} {action}") == 0
    assert said in shell.err

    shell.kafka.control.ensure()
    assert shell(f"{scope} {action}") == 0
    assert "no hold was seen" not in shell.err


# --- releasing --------------------------------------------------------------------------------------------------------

WHY_LIMITED = ("no", "records", "from", "offset", "30", "on:", "offset", "reset", "one")
HOLDERS = ("cli", "nightly-batch", "pause/6c9d/0b41", "reset/5f/one", "reset/cli/cli-1", "reset/starts/5f/1")


@pytest.fixture
def left(shell: Shell) -> Shell:
    """What nobody lets go of: each holder holds a partition of one group, and one holds another group's."""
    control = shell.kafka.control
    control.ensure()
    control.hold({HoldKey(GROUP, "orders", n, holder): Hold(f"why {n}") for n, holder in enumerate(HOLDERS)})
    control.hold({HoldKey("refunds", "orders", 0, "reset/7a/two"): Hold()})
    return shell


def _all_held(shell: Shell) -> set[tuple[str, str]]:
    return {(key.group, key.holder) for key in shell.kafka.control.read().holds}


@pytest.mark.parametrize("option", ["", "--dry-run"])
def test_what_would_be_released_is_listed_and_stays_held(left: Shell, option: str) -> None:
    before = _all_held(left)

    assert left(f"--group {GROUP} --release-all {option}") == 0

    assert left.out.splitlines()[1].split() == ["GROUP", "TOPIC", "PARTITION", "SINCE", "HOLDER", "REASON"]
    assert [(row[2], row[4], " ".join(row[5:])) for row in left.rows] == [
        (str(n), holder, f"why {n}") for n, holder in enumerate(HOLDERS)
    ]
    assert "refunds" not in left.out
    assert "None was, because the --execute option is missing" in left.err
    assert _all_held(left) == before


def test_all_that_a_group_is_held_by_is_released_whoever_holds_it(left: Shell) -> None:
    assert left(f"--group {GROUP} --release-all --execute") == 0

    assert _all_held(left) == {("refunds", "reset/7a/two")}
    assert len(left.rows) == len(HOLDERS)
    assert "6 hold(s) released" in left.err


def test_of_all_groups_also_those_are_released_that_nobody_knows(left: Shell) -> None:
    left.kafka.control.hold({HoldKey("gone", "gone", 7, "reset/5f/one"): Hold()})

    assert left("--all-groups --release-all --execute") == 0

    assert _all_held(left) == set()


@pytest.mark.parametrize("scope", [f"--group {GROUP}", "--all-groups"])
def test_the_limits_of_a_replay_that_nobody_ends_are_listed_and_released(shell: Shell, scope: str) -> None:
    """Of an operator that was uninstalled, say: whoever has come to its limit reads nothing more."""
    shell.kafka.control.ensure()
    key = LimitKey(GROUP, "orders", 0, "reset/5f/one")
    shell.kafka.control.limit({key: Limit(30, "offset reset one")})
    assert shell(f"{scope} --release-all") == 0
    assert shell.rows == [[GROUP, "orders", "0", "-", "reset/5f/one", *WHY_LIMITED]]
    assert REPLAYS_MAY_RUN in shell.err
    assert set(shell.kafka.control.read().limits) == {key}

    assert shell(f"{scope} --release-all --execute") == 0

    assert "1 hold(s) released" in shell.err
    assert not shell.kafka.control.read().limits


@pytest.mark.parametrize(
    ("holder", "pauses_come_back", "resets_may_run"),
    [("cli", False, False), ("pause/6c9d/0b41", True, False), ("reset/5f/one", False, True)],
)
def test_what_may_come_of_it_is_said_where_it_may(
    shell: Shell, holder: str, pauses_come_back: bool, resets_may_run: bool
) -> None:
    shell.kafka.control.ensure()
    shell.kafka.control.hold({HoldKey(GROUP, "orders", 0, holder): Hold()})

    assert shell(f"--group {GROUP} --release-all") == 0

    assert (PAUSES_COME_BACK in shell.err, RESETS_MAY_RUN in shell.err) == (pauses_come_back, resets_may_run)


def test_nothing_is_released_that_was_not_listed_and_what_is_held_again_is_an_error(
    left: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = left.kafka.control
    release = control.release
    again, new = HoldKey(GROUP, "orders", 2, HOLDERS[2]), HoldKey(GROUP, "orders", 9, "cli")

    def release_and_then(keys: Iterable[HoldKey]) -> None:
        control.hold({new: Hold()})
        release(keys)
        control.hold({again: Hold()})

    monkeypatch.setattr(control, "release", release_and_then)

    assert left(f"--group {GROUP} --release-all --execute") == 1

    assert f"Error: {again.holder} holds orders-2 of consumer group 'payments' again" in left.out
    assert "5 hold(s) released" in left.err
    assert _held(left) == {(again.topic_partition, again.holder), (new.topic_partition, "cli")}


@pytest.mark.parametrize("scope", [f"--group {GROUP}", "--all-groups"])
def test_where_nothing_is_held_that_is_said(shell: Shell, scope: str) -> None:
    assert shell(f"{scope} --release-all --execute") == 0
    assert "Nothing is held" in shell.err


# --- looking ----------------------------------------------------------------------------------------------------------


def test_a_description_survives_a_topic_that_is_gone(shell: Shell) -> None:
    shell.kafka.commit_directly(GROUP, {TopicPartition("gone", 0): 3})

    assert shell(f"--group {GROUP} --describe") == 0

    assert shell.rows == [
        [GROUP, "gone", "0", "3", "-", "-", "-", "-", "-"],
        [GROUP, "orders", "0", "10", "100", "90", "-", "-", "-"],
        [GROUP, "orders", "1", "20", "100", "80", "-", "-", "-"],
    ]
    assert "has no active members" in shell.err


def test_when_the_offsets_of_each_group_expire_is_described(shell: Shell) -> None:
    shell.kafka.retention.may_read_log = True
    consumer = FakeConsumer(shell.kafka, "payments-live", ["orders"]).start()
    shell.kafka.clock.sleep(10)

    assert shell(f"--group {GROUP} --group payments-live --describe --retention") == 0

    expires = (START + timedelta(days=7)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert shell.rows[0] == [GROUP, "simple", "Empty", "2", "0", "yes", expires]
    assert shell.rows[1][:3] == ["payments-live", "classic", "Stable"]
    assert shell.rows[1][-1] == "-"
    consumer.close()
    shell.kafka.retention.may_read_log = False

    assert shell(f"--group {GROUP} --describe --retention") == 0

    assert shell.rows[0][-2:] == ["no", "-"]


def test_a_missing_group_leaves_the_others_described(shell: Shell) -> None:
    assert shell(f"--group nope --group {GROUP} --describe") == 0

    assert "Error: Consumer group 'nope' does not exist." in shell.out
    assert len(shell.rows) == 2


def test_a_rebalancing_group_is_said_to_be(shell: Shell) -> None:
    FakeConsumer(shell.kafka, GROUP, ["orders"]).start()
    shell.kafka.clock.sleep(10)
    shell(f"--group {GROUP} --describe --state")
    assert shell.rows[0][1:5] == ["127.0.0.1:9092", "(0)", "range", "Stable"]
    shell.kafka.rebalance(GROUP)

    shell(f"--group {GROUP} --describe --state")

    assert "Warning: Consumer group 'payments' is rebalancing." in shell.err
    assert shell.rows[0][4] == "PreparingRebalance"


def test_groups_are_listed_by_state_and_type(shell: Shell) -> None:
    FakeConsumer(shell.kafka, "b", ["orders"], protocol=GroupType.CONSUMER).start()
    gone = FakeConsumer(shell.kafka, "a", ["orders"]).start()
    shell.kafka.clock.sleep(10)
    gone.close()

    assert shell("--list") == 0
    assert shell.out == f"a\nb\n{GROUP}\n"
    assert shell("--list --state Stable --type") == 0
    assert [line.split() for line in shell.out.splitlines()] == [
        ["GROUP", "TYPE", "STATE"],
        ["b", "Consumer", "Stable"],
    ]
    with pytest.raises(UsageError, match=r"Invalid types list 'share'. Valid types are: Consumer, Classic"):
        shell("--list --type share")


def test_a_request_may_take_as_long_as_the_time_out_says() -> None:
    looking = parse_options(["--bootstrap-server", "k:1", "--list", "--timeout", "700"])
    pausing = parse_options(
        ["--bootstrap-server", "k:1", "--pause", "--group", "g", "--topic", "t", "--control-topic", "__c"]
    )

    assert connection_of(looking, CONNECTION).properties == {"socket.timeout.ms": "700"}
    assert connection_of(pausing, CONNECTION) == Connection("kafka:9092", control_topic="__c")


def test_pauses_are_those_of_the_holder_of_the_contract(owned: Shell) -> None:
    owned(f"--group {GROUP} --topic orders:0 --pause")

    assert _held(owned) == {(ORDERS[0], "cli")}
    assert Pauses(owned.kafka, owned.kafka.clock).held(GROUP, by_us=True) == {ORDERS[0]}


@pytest.mark.parametrize(
    ("options", "stay"),
    [
        ("--holder nightly", {"cli"}),
        ("--holder cli --holder nightly", set()),
        ("--topic orders:1", {"nightly"}),
        ("--topic orders", set()),
        ("--topic refunds", {"cli", "nightly"}),
    ],
)
def test_some_of_what_is_held_is_released_by_holder_or_topic(shell: Shell, options: str, stay: set[str]) -> None:
    shell.kafka.control.ensure()
    shell.kafka.control.hold(
        {HoldKey(GROUP, "orders", 0, "nightly"): Hold(), HoldKey(GROUP, "orders", 1, "cli"): Hold()}
    )

    assert shell(f"--group {GROUP} --release-all {options} --execute") == 0

    assert {key.holder for key in shell.kafka.control.read().holds} == stay


def test_a_hold_drives_no_terminal_and_is_released_by_the_name_that_is_shown(shell: Shell) -> None:
    shell.kafka.control.ensure()
    shell.kafka.control.hold({HoldKey(GROUP, "orders", 0, "night\u202ely"): Hold("\x1b[2Jgone")})

    assert shell(f"--group {GROUP} --release-all --holder night\\u202ely --execute") == 0

    assert "\\x1b[2Jgone" in shell.out
    assert not set("\x1b\u202e") & set(shell.out + shell.err)
    assert not shell.kafka.control.read().holds


def test_a_hold_is_listed_also_where_its_time_is_none_that_a_calendar_has(shell: Shell) -> None:
    """Where the control topic's timestamps are its writers', they may say anything."""
    shell.kafka.control.ensure()
    shell.kafka.control._append("hold", HoldKey(GROUP, "orders", 0, "cli"), Hold(), 2**62)

    assert shell(f"--group {GROUP} --paused-partitions") == 0
    assert shell.rows[0][7:9] == ["-", "cli"]
    assert shell(f"--group {GROUP} --release-all") == 0
    assert shell.rows[0][3:5] == ["-", "cli"]


# --- names that clients choose ----------------------------------------------------------------------------------------

HOSTILE = "pay\x1b]0;x\x07\nevil"
SHOWN = "pay\\x1b]0;x\\x07\\nevil"


@pytest.mark.parametrize(
    "command",
    [
        "--list",
        "--list --state --type",
        "--describe --all-groups",
        "--describe --all-groups --members --verbose",
        "--describe --all-groups --state",
        "--describe --all-groups --retention",
    ],
)
def test_names_that_drive_a_terminal_are_shown_and_not_sent(owned: Shell, command: str) -> None:
    FakeConsumer(owned.kafka, HOSTILE, ["orders"], client_id="\x1b[31mred").start()
    owned.kafka.clock.sleep(10)

    owned(command)

    assert "\x1b" not in owned.out + owned.err
    assert SHOWN in owned.out
    assert "evil" not in [line.split(" ")[0] for line in owned.out.splitlines()]


@pytest.mark.parametrize("how", ["--dry-run", "--execute"])
def test_so_are_those_of_groups_that_are_reset(shell: Shell, how: str) -> None:
    shell.kafka.commit_directly(HOSTILE, {ORDERS[0]: 5})
    options = parse_options(
        [
            "--bootstrap-server",
            "k:9",
            "--group",
            HOSTILE,
            "--topic",
            "orders",
            "--reset-offsets",
            "--to-offset",
            "3",
            how,
        ]
    )
    screen = Screen(io.StringIO(), io.StringIO())

    Resetting(options, CONNECTION, shell.kafka, shell.kafka.clock, screen, shell.folder).run(options.groups)

    assert isinstance(screen.out, io.StringIO)
    assert isinstance(screen.err, io.StringIO)
    assert SHOWN in screen.out.getvalue()
    assert screen.err.getvalue().startswith(f"{SHOWN}: 3 of 3 partition(s) move")
    assert "\x1b" not in screen.out.getvalue() + screen.err.getvalue()

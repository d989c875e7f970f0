"""What ``tidegate plan`` shows of a stored run: on a terminal, as a page, as JSON; and that no record drives either."""

from __future__ import annotations

import io
import json
import unicodedata
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from support.hostile import HOSTILE, Elements
from support.planned_runs import PLANNED, a_fleets_run, a_plan, a_run, sample, some_evidence
from tidegate.cli.fleet_review import FleetReview, fleet_review
from tidegate.cli.plan_page import page
from tidegate.cli.plan_screen import show
from tidegate.cli.planning import as_json
from tidegate.cli.review import Review, bytes_text, review
from tidegate.jobs.storage import S3
from tidegate.printable import visible, visible_bytes
from tidegate.reset.binding import digest_of
from tidegate.reset.evidence import Content, Evidence
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.request import EvidenceSettings, FleetRequest, Waves
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromBackup, FromFile, FromGroup, Target, ToOffset
from tidegate.reset.store import Run
from tidegate.resources.reset import ResetPhase

GOLDEN = Path(__file__).parent / "golden" / "plan.txt"
NOW = PLANNED + timedelta(minutes=3)


def reviewed(run: Run) -> Review:
    return review("default", "payments", run, NOW)


def on_screen(run: Run) -> str:
    out = io.StringIO()
    show(reviewed(run), out)
    return out.getvalue()


def reviewed_fleet(run: Run) -> FleetReview:
    return fleet_review("default", "payments", run, NOW)


def hostile_fleet() -> Run:
    run = a_fleets_run()
    assert run.fleet is not None
    bad = [replace(g, group_id=HOSTILE, message=HOSTILE, refused=g.refused) for g in run.fleet.groups]
    fleet = replace(run.fleet, run_id=HOSTILE, groups=tuple(bad), notes=(HOSTILE,))
    asked = replace(run.request, fleet=FleetRequest((HOSTILE,)), target=FromGroup(HOSTILE))
    return replace(run, request=asked, fleet=fleet, result=RunResult(ResetPhase.FAILED, "Why", HOSTILE, NOW))


def hostile_run() -> Run:
    """Every text that a broker, a producer or a writer of ConfigMaps chooses is hostile."""
    plan = replace(
        a_plan(),
        run_id=HOSTILE,
        group_id=HOSTILE,
        notes=(HOSTILE,),
        partitions=(*a_plan().partitions, PartitionPlan(HOSTILE, 0, "id", 5, 1, 0, 9)),
    )
    bad = Content(40, HOSTILE, HOSTILE, cut=True)
    evidence = some_evidence()
    evidence = replace(
        evidence,
        notes=(HOSTILE,),
        topics=(*evidence.topics, replace(evidence.topics[1], topic=HOSTILE)),
        samples=(sample(1, 1, bad, bad), replace(sample(2, 1, Content(1, HOSTILE), bad), topic=HOSTILE)),
    )
    run = a_run(plan=plan, evidence=evidence)
    result = RunResult(ResetPhase.FAILED, "Why", HOSTILE, NOW)
    return replace(run, request=replace(run.request, target=FromFile((), HOSTILE)), result=result)


def test_the_terminal_shows_the_whole_plan() -> None:
    shown = "".join(f"{line.rstrip()}\n" for line in on_screen(a_run(evidence=some_evidence())).splitlines())

    assert shown == GOLDEN.read_text(encoding="utf-8"), f"if it is meant, write this to {GOLDEN}:\n{shown}"


def test_the_page_is_one_file_that_loads_and_runs_nothing() -> None:
    found = Elements(page(reviewed(a_run(evidence=some_evidence()))))

    assert found.open == []
    names = {name for name, _ in found.elements}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "form", "base", "use", "image"})
    attributes = {name for _, of in found.elements for name in of}
    assert attributes.isdisjoint({"src", "href", "xlink:href", "srcdoc", "action"})
    assert not any(name.startswith("on") for name in attributes)
    policy = next(of for name, of in found.elements if name == "meta" and "http-equiv" in of)
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert "url(" not in page(reviewed(a_run(evidence=some_evidence())))


def test_each_plot_can_be_read_without_seeing_it() -> None:
    found = Elements(page(reviewed(a_run(evidence=some_evidence()))))

    plots = [of for name, of in found.elements if name == "svg"]
    ids = [of["id"] for _, of in found.elements if "id" in of]
    assert len(plots) == 2 + len(a_plan().partitions)
    assert len(ids) == len(set(ids))
    for plot in plots:
        assert plot["role"] == "img"
        named_by = (plot.get("aria-labelledby") or "").split()
        assert plot.get("aria-label") or (named_by and set(named_by) <= set(ids))
    assert "orders-0 goes back from 1,900,000 to 700,000, 1,200,000 read again" in page(reviewed(a_run()))
    assert sum(name == "details" for name, _ in found.elements) == 2
    assert "Read again: 4,880, most from 2026-11-20T14:00:00Z on (900)." in found.text


def test_no_record_drives_the_terminal() -> None:
    shown = on_screen(hostile_run())

    controls = {c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs")} - {"\n"}
    assert controls == set()
    assert r"\x1b[31m\x9b2J\x1b]0;owned\x07\u202eevil\r\n\ud800{x}%s[red]" in "".join(shown.split())


def test_no_record_becomes_a_part_of_the_page() -> None:
    text = page(reviewed(hostile_run()))
    hostile, plain = Elements(text), Elements(page(reviewed(a_run(evidence=some_evidence()))))

    assert hostile.open == []
    assert {name for name, _ in hostile.elements} <= {name for name, _ in plain.elements} | {"bdi", "code"}
    assert {a for _, of in hostile.elements for a in of} == {a for _, of in plain.elements for a in of}
    assert "<script>alert(1)</script>" in hostile.text
    assert {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")} == {"\n"}
    text.encode("utf-8")


def test_the_json_is_ascii_and_the_stored_plan() -> None:
    text = json.dumps(as_json("default", a_run(evidence=some_evidence())))

    assert text.isascii()
    read = json.loads(text)
    assert read["phase"] == "AwaitingApproval"
    assert read["plan"]["partitions"][0]["target"] == 700_000
    assert read["evidence"]["topics"][0]["replayed"]["keys"] == 118_404


def test_hidden_contents_are_sizes_and_digests() -> None:
    run = a_run(evidence=some_evidence())
    shown = replace(
        some_evidence(), samples=(sample(1, 1, Content(5, "d1", "k-1"), Content(900, "d2", '{"a":1', cut=True)),)
    )

    for text in (on_screen(run), page(reviewed(run))):
        assert "36 B #77ab01c29e3f" in text
        assert "showValues" in text
    for text in (on_screen(a_run(evidence=shown)), Elements(page(reviewed(a_run(evidence=shown)))).text):
        assert "k-1" in text
        assert '{"a":1…' in text
        assert "showValues" not in text


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (a_run(settings=EvidenceSettings()), "No evidence was requested"),
        (replace(a_run(), journal=(replace(a_run().journal[-1], at=NOW),)), "is still being gathered, since"),
        (a_run(), "the job ended before it was gathered"),
        (a_run(evidence=Evidence(NOW, notes=("Kafka did not answer",))), "Kafka did not answer"),
    ],
)
def test_why_there_is_no_evidence_is_said(run: Run, said: str) -> None:
    assert said in on_screen(run)
    assert said in page(reviewed(run))


def test_how_to_approve_is_said_while_it_waits_and_how_it_ended_afterwards() -> None:
    command = f"tidegate approve payments --namespace default --plan {digest_of(a_run())}"
    ended = replace(a_run(), result=RunResult(ResetPhase.SUCCEEDED, "Verified", "3 partitions moved", NOW))

    assert command in on_screen(a_run())
    assert command in page(reviewed(a_run()))
    for text in (on_screen(ended), page(reviewed(ended))):
        assert "tidegate approve" not in text
        assert "Succeeded: 3 partitions moved" in text


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (ToOffset(42), "to offset 42"),
        (FromGroup("other"), "to the committed offsets of group other"),
        (
            FromBackup(S3("backups", "kafka")),
            "to where the group was in the newest backup in s3a://backups/kafka",
        ),
    ],
)
def test_the_target_is_said_in_words(target: Target, words: str) -> None:
    run = a_run()
    run = replace(run, request=replace(run.request, target=target))

    assert words in on_screen(run)


def test_many_partitions_are_cut_and_counted() -> None:
    rows = tuple(PartitionPlan("orders", n, "id", n, 0, 0, 5_000) for n in range(3_000))
    run = a_run(plan=Plan("r", "g", PLANNED, rows))

    assert "and 2,960 more partitions" in on_screen(run)
    assert "and 1,000 more partitions" in page(reviewed(run))
    assert len(page(reviewed(run))) < 4_000_000


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1 KiB"), (1_440_000_000, "1.34 GiB"), (10**18, "888 PiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_foreign_text_is_escaped_once_and_cut() -> None:
    assert visible("plain ünïcödé 漢字 🚀") == "plain ünïcödé 漢字 🚀"
    assert visible(visible("a\x1b\u202eb")) == visible("a\x1b\u202eb") == "a\\x1b\\u202eb"
    assert visible_bytes(b"abc\xff\x00", 20) == ("abc\\xff\\x00", False)
    assert visible_bytes(b"abcdef", 3) == ("abc", True)


# --- a fleet ----------------------------------------------------------------------------------------------------------


def test_the_terminal_shows_a_fleets_groups_and_who_has_no_plan() -> None:
    out = io.StringIO()
    show(reviewed_fleet(a_fleets_run()), out)
    shown = "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
    golden = GOLDEN.with_name("fleet.txt")

    assert shown == golden.read_text(encoding="utf-8"), f"if it is meant, write this to {golden}:\n{shown}"


def test_a_fleets_page_has_every_group_and_can_be_read_without_seeing_it() -> None:
    found = Elements(page(reviewed_fleet(a_fleets_run())))

    assert found.open == []
    plots = [of.get("aria-label") for name, of in found.elements if name == "svg"]
    assert plots == [
        "payments-eu: 1,904,880 read again, 6,500 skipped",
        "payments-us: 40 read again, 0 skipped",
        "payments-at: 0 read again, 0 skipped",
    ]
    assert "group payments-x has no offsets" in found.text
    assert f"--plan {digest_of(a_fleets_run())}" in found.text


def in_waves(waves: Waves) -> Run:
    run = a_fleets_run()
    assert run.request.fleet is not None
    return replace(run, request=replace(run.request, fleet=replace(run.request.fleet, waves=waves)))


def test_a_fleet_in_waves_is_shown_wave_by_wave() -> None:
    run, out = in_waves(Waves(groups=2, pause=timedelta(minutes=5))), io.StringIO()
    show(reviewed_fleet(run), out)
    rows = [line.split()[:2] for line in out.getvalue().splitlines() if line.startswith("payments-")]

    # Waves go by the groups' names; in each, whoever moves most is first.
    assert rows == [["payments-eu", "1"], ["payments-at", "1"], ["payments-us", "2"]]
    said = "It is rolled out in 2 waves, 5m apart; once a group has failed, no further group begins"
    assert said in out.getvalue()
    assert said in Elements(page(reviewed_fleet(run))).text
    assert as_json("default", run)["waves"] == [["payments-at", "payments-eu"], ["payments-us"]]


def test_without_waves_none_are_shown() -> None:
    assert reviewed_fleet(a_fleets_run()).rollout is None
    assert as_json("default", a_fleets_run())["waves"] is None
    assert "wave" not in Elements(page(reviewed_fleet(a_fleets_run()))).text


def test_no_group_drives_the_terminal_or_becomes_a_part_of_the_page() -> None:
    out = io.StringIO()
    show(reviewed_fleet(hostile_fleet()), out)
    hostile = Elements(page(reviewed_fleet(hostile_fleet())))
    plain = Elements(page(reviewed_fleet(a_fleets_run())))

    assert {c for c in out.getvalue() if unicodedata.category(c) in ("Cc", "Cf", "Cs")} == {"\n"}
    assert hostile.open == []
    assert {name for name, _ in hostile.elements} <= {name for name, _ in plain.elements}
    assert {a for _, of in hostile.elements for a in of} <= {a for _, of in plain.elements for a in of}


def test_programs_get_a_fleets_plan_as_it_is_stored() -> None:
    read = as_json("default", a_fleets_run())

    assert (read["run"], read["phase"], read["result"]) == ("replay-2026-11-20", "AwaitingApproval", None)
    assert [g["group_id"] for g in read["fleet"]["groups"]] == [
        "payments-at",
        "payments-eu",
        "payments-us",
        "payments-x",
    ]

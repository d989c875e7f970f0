"""What ``tidegate audit`` prints: on a terminal, as JSON, as a page; and that no name drives any of them."""

from __future__ import annotations

import io
import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from support.audited import a_report, cluster, group, member, report_of, seen
from support.hostile import HOSTILE, Elements
from tidegate.cli import audit_page
from tidegate.cli.audit_json import as_json
from tidegate.cli.audit_page import page
from tidegate.cli.audit_screen import MOST_GROUPS, show
from tidegate.cli.cluster_audit import run_cluster_audit
from tidegate.cli.errors import UsageError
from tidegate.cli.main import main
from tidegate.cli.screen import Screen
from tidegate.inspection.findings import ABOUT, MOST_PARTITIONS, FindingKind, Severity
from tidegate.inspection.gather import Audit
from tidegate.inspection.report import Report, Unseen
from tidegate.inspection.resetting import Possible
from tidegate.kafka.model import Member, TopicPartition

GOLDEN = Path(__file__).parent / "golden"
DOCS = Path(__file__).parents[3] / "docs"


def on_screen(report: Report) -> str:
    out = io.StringIO()
    show(report, out)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def hostile_report() -> Report:
    """Every text that a broker or a client chooses is hostile."""
    report = a_report()
    return replace(
        report,
        cluster_id=HOSTILE,
        capabilities={
            kind: replace(found, message=HOSTILE, reason=HOSTILE) for kind, found in report.capabilities.items()
        },
        settings=dict.fromkeys(report.settings, (HOSTILE,)),
        findings=tuple(
            replace(
                finding,
                group=HOSTILE,
                what=HOSTILE,
                known=HOSTILE,
                partitions=tuple(replace(p, topic=HOSTILE, owner=HOSTILE) for p in finding.partitions),
            )
            for finding in report.findings
        ),
        verdicts=tuple(replace(verdict, group=HOSTILE, because=HOSTILE) for verdict in report.verdicts),
        unseen=(Unseen(HOSTILE, HOSTILE, HOSTILE),),
    )


def is_golden(name: str, text: str) -> bool:
    file = GOLDEN / name
    return file.exists() and text == file.read_text(encoding="utf-8")


def test_the_terminal_shows_it_all() -> None:
    shown = on_screen(a_report())
    assert is_golden("audit.txt", shown), f"if it is meant, write this to golden/audit.txt:\n{shown}"


def test_the_json_is_as_documented() -> None:
    text = json.dumps(as_json(a_report()), indent=2) + "\n"
    assert text.isascii()
    assert is_golden("audit.json", text), f"if it is meant, write this to golden/audit.json:\n{text}"


def test_the_page_is_one_file_that_loads_and_runs_nothing() -> None:
    text = page(a_report())
    found = Elements(text)

    assert found.open == []
    names = {name for name, _ in found.elements}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "form", "base", "use", "image", "a"})
    attributes = {name for _, of in found.elements for name in of}
    assert attributes.isdisjoint({"src", "href", "srcdoc", "action", "style"})
    assert not any(name.startswith("on") for name in attributes)
    policy = next(of for name, of in found.elements if name == "meta" and "http-equiv" in of)
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert "url(" not in text
    assert "prefers-color-scheme:dark" in text
    assert "@media print" in text


def test_the_page_says_what_the_terminal_says() -> None:
    text = Elements(page(a_report())).text
    for finding in a_report().findings:
        assert finding.what in text
        assert finding.known in text
        assert ABOUT[finding.kind].remedy in text
    assert "exactly when committed offsets expire: the principal may not." in text


def test_the_page_says_whether_anything_was_changed() -> None:
    assert "Nothing was changed." in page(a_report())
    probed = Elements(page(replace(a_report(), probed=True))).text
    assert "Nothing was changed." not in probed
    assert "was tried with groups named tidegate.probe/…; nothing else was changed." in probed


def test_no_name_drives_the_terminal() -> None:
    shown = on_screen(hostile_report())
    assert {c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs")} == {"\n"}
    assert r"\x1b[31m\x9b2J\x1b]0;owned\x07\u202eevil\r\n\ud800{x}%s[red]" in "".join(shown.split())


def test_no_name_becomes_a_part_of_the_page() -> None:
    text = page(hostile_report())
    hostile, plain = Elements(text), Elements(page(a_report()))

    assert hostile.open == []
    assert {name for name, _ in hostile.elements} == {name for name, _ in plain.elements}
    assert {a for _, of in hostile.elements for a in of} == {a for _, of in plain.elements for a in of}
    assert "<script>alert(1)</script>" in hostile.text
    assert {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")} == {"\n"}
    text.encode("utf-8")


def test_hostile_names_stay_as_they_are_in_ascii_json() -> None:
    text = json.dumps(as_json(hostile_report()))
    assert text.isascii()
    assert json.loads(text)["findings"][0]["group"] == HOSTILE


def test_names_of_clients_are_shown_as_they_are_and_harmless() -> None:
    """Through the whole of it: what a member says of itself is in a sentence."""
    rude = Member(HOSTILE, HOSTILE, HOSTILE, HOSTILE, frozenset({TopicPartition("orders", 0)}))
    ends, grew = {0: (0, 20)}, {0: (0, 10)}
    what = seen(group(rude), {0: 5}, before={0: 5}, ends=ends, ends_before=grew)
    report = report_of(cluster(), {"payments": what})

    assert report.findings[0].kind is FindingKind.NO_PROGRESS
    for text in (on_screen(report), page(report)):
        assert {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs")} == {"\n"}
    assert Elements(page(report)).open == []


def test_many_findings_are_cut_and_counted_and_the_json_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_page, "MOST_FINDINGS", 3)
    monkeypatch.setattr(audit_page, "MOST_VERDICTS", 4)
    what = seen(group(), {0: 5})
    report = report_of(cluster(), {f"group-{n:02}": what for n in range(MOST_GROUPS + 5)})

    assert "and 5 more: --html FILE and --output json" in on_screen(report)
    text = Elements(page(report)).text
    assert "and 10 more: --output json has them all." in text
    assert "and 9 more: --output json has them all." in text
    assert len(as_json(report)["findings"]) == len(as_json(report)["resets"]) == MOST_GROUPS + 5


def test_nothing_found_is_said_with_what_was_not_seen() -> None:
    report = report_of(cluster(), {"payments": seen(group(member("c1", 0)), {0: 5}, ends={0: (0, 5)})})
    for text in (on_screen(report), Elements(page(report)).text):
        assert "Nothing was found in what could be seen." in text
        assert "no leader reported their ends" in text
    assert not report.reaches(Severity.INFO)


def test_how_bad_a_report_is() -> None:
    worst = a_report().findings[0].severity
    assert worst is Severity.CRITICAL
    assert all(a_report().reaches(severity) for severity in Severity)
    mild = replace(a_report(), findings=tuple(f for f in a_report().findings if f.severity is Severity.INFO))
    assert [severity for severity in Severity if mild.reaches(severity)] == [Severity.INFO]


def test_colours_only_where_the_terminal_has_them() -> None:
    assert "\x1b" not in on_screen(a_report())


def test_the_reference_has_each_finding_each_member_and_each_guide() -> None:
    reference = (DOCS / "reference" / "cluster-audit.md").read_text(encoding="utf-8")
    for kind in FindingKind:
        assert f"`{kind.value}`" in reference
    told = as_json(a_report())
    assert f"at most {MOST_PARTITIONS}" in reference
    for part in (told, told["cluster"], told["findings"][0], told["resets"][0], told["notSeen"][0]):
        for member_name in part:
            assert f"`{member_name}`" in reference, member_name
    for name in told["findings"][0]["partitions"][0]:
        assert f"`{name}`" in reference, name
    for possible in Possible:
        assert f"`{possible.value}`" in reference
    for about in ABOUT.values():
        assert not about.guide or (DOCS / about.guide).is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--bootstrap-server"),
        (["--bootstrap-server", "kafka:9092", "--watch", "soon"], "--watch soon: must be a duration"),
        (["--bootstrap-server", "kafka:9092", "--exact", "-1"], "--exact takes a number of groups"),
        (["--bootstrap-server", "kafka:9092", "--fail-on", "bad"], "--fail-on"),
        (["--bootstrap-server", "kafka:9092", "log"], "log"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run_cluster_audit(arguments, Screen(io.StringIO(), io.StringIO()))


def test_a_cluster_that_does_not_answer_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    config.write_text("request.timeout.ms=300\n")
    code = main(["audit", "--bootstrap-server", "127.0.0.1:1", "--command-config", str(config), "--fail-on", "info"])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert "tidegate audit: " in err


def test_one_may_stop_waiting_for_the_second_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: Audit) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr(Audit, "report", interrupted)
    assert main(["audit", "--bootstrap-server", "127.0.0.1:1"]) == 130
    assert capsys.readouterr() == ("", "Looking twice, 20s apart; nothing is changed.\nInterrupted.\n")


def test_the_audit_log_is_still_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "log"]) == 1
    assert "tidegate audit log" in capsys.readouterr().err

"""The documents say what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from support.scripts import loaded
from tidegate.offset_backup.metrics import BackupMetrics
from tidegate.offset_mirror.metrics import MirrorMetrics
from tidegate.retention.metrics import RetentionMetrics
from tidegate.service.metrics import Metrics
from tidegate.service.settings import Settings
from tidegate.stuck.metrics import StuckMetrics

DOCS = Path(__file__).resolve().parents[3] / "docs"
ROOT = DOCS.parent
REGENERATE = "run: .venv/bin/python docs/generate_reference.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return loaded(DOCS / "generate_reference.py")


def test_the_pages_of_the_kinds_are_those_of_the_crds(generator: ModuleType) -> None:
    pages = generator.pages()

    assert sorted(pages) == [
        *("consumergrouppause.md", "kafkaconnection.md"),
        *("offsetbackup.md", "offsetmirror.md", "offsetreset.md", "offsetresetapproval.md", "offsetresetpolicy.md"),
    ]
    for name, text in pages.items():
        assert (DOCS / "reference" / name).read_text() == text, f"{REGENERATE} ({name})"


def test_every_field_of_the_spec_has_a_row(generator: ModuleType) -> None:
    page = generator.pages()["offsetresetpolicy.md"]

    for field in ("reset.to.timestamp", "reset.partitions[].topic", "spark.driver.memory", "reset.recordsReplayed"):
        assert f"| `{field}`" in page


def test_an_out_of_date_page_is_noticed(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "REFERENCE", tmp_path)
    assert generator.main(["--check"]) == 1
    assert "offsetresetpolicy.md is out of date" in capsys.readouterr().err
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0


def test_the_tables_are_those_of_the_code(generator: ModuleType) -> None:
    for name, text in generator.wanted(DOCS / "reference").items():
        assert (DOCS / "reference" / name).read_text() == text, f"{REGENERATE} ({name})"
    marks = {mark for page in DOCS.rglob("*.md") for mark in re.findall(r"<!-- begin ([a-z ]+) -->", page.read_text())}
    assert marks == set(generator.tables())


def test_every_metric_and_every_variable_has_a_row_with_its_meaning(generator: ModuleType) -> None:
    row = re.compile(r"^\| `(\w+)` \|.* (\S+) \|$", re.MULTILINE)
    tables = {name: row.findall(table) for name, table in generator.tables().items()}
    registry = Metrics().registry
    RetentionMetrics(registry)
    StuckMetrics(registry)
    BackupMetrics(registry)
    MirrorMetrics(registry)
    real = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
        if family.name.startswith("tidegate_")
    }
    source = (ROOT / "operator" / "tidegate" / "jobs" / "settings.py").read_text()
    spark = re.findall(r"""\.(?:text|number|one_of|names|conf)\(\s*"([A-Z_]+)\"""", source)
    agent = (ROOT / "agents" / "python" / "tidegate_agent" / "settings.py").read_text()

    assert {name for name, _ in tables["metrics"]} >= real
    assert {name for name, _ in tables["settings"]} == {
        f"TIDEGATE_{name.upper()}" for name in Settings.model_fields if name != "spark"
    }
    assert {name for name, _ in tables["spark settings"]} == {f"TIDEGATE_SPARK_{name}" for name in spark}
    assert {name for name, _ in tables["agent settings"]} == set(re.findall(r'= "(TIDEGATE_\w+)"', agent))


PAGES = sorted({*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("agents/*/README.md")})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        there = page.parent / target if target else page
        assert there.exists(), f"{page.relative_to(ROOT)} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.relative_to(ROOT)} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked_from_the_index() -> None:
    index = (DOCS / "README.md").read_text() + (DOCS / "adr" / "README.md").read_text()
    pages = {page.name for page in DOCS.rglob("*.md")} - {"README.md"}

    assert {name for name in pages if name not in index} == set()


@pytest.mark.parametrize("page", [*PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_a_page_names_are_there(page: Path) -> None:
    for path, name in re.findall(r"\b(tests/\w[\w/]*(?:\.py|\.md|\.toml)?)(?:::(\w+))?", page.read_text()):
        assert (ROOT / path).exists(), f"{page.relative_to(ROOT)} names {path}"
        if name:
            assert f"def {name}(" in (ROOT / path).read_text(), f"{page.relative_to(ROOT)} names {path}::{name}"

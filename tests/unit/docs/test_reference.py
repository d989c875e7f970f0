"""The documents say what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tidegate.metrics import Metrics
from tidegate.retention.metrics import RetentionMetrics
from tidegate.settings import Settings

DOCS = Path(__file__).resolve().parents[3] / "docs"
ROOT = DOCS.parent


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", DOCS / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_of_the_kinds_are_those_of_the_crds(generator: ModuleType) -> None:
    pages = generator.pages()

    assert sorted(pages) == ["consumergrouppause.md", "kafkaconnection.md", "offsetresetpolicy.md"]
    for name, text in pages.items():
        assert (DOCS / "reference" / name).read_text() == text, f"run: python docs/generate_reference.py ({name})"


def test_every_field_of_the_spec_has_a_row(generator: ModuleType) -> None:
    page = generator.pages()["offsetresetpolicy.md"]

    for field in ("reset.to.timestamp", "reset.partitions[].topic", "spark.driver.memory", "reset.standstill.p50"):
        assert f"| `{field}`" in page


def test_an_out_of_date_page_is_noticed(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "REFERENCE", tmp_path)
    assert generator.main(["--check"]) == 1
    assert "offsetresetpolicy.md is out of date" in capsys.readouterr().err
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0


def test_every_metric_is_documented_and_no_other() -> None:
    documented = set(re.findall(r"^\| `(tidegate_\w+)`", (DOCS / "reference" / "metrics.md").read_text(), re.MULTILINE))
    registry = Metrics().registry
    RetentionMetrics(registry)
    real = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
        if family.name.startswith("tidegate_")
    }

    assert documented == real


def test_every_setting_is_documented_and_no_other() -> None:
    documented = set(re.findall(r"`(TIDEGATE_\w+)`", (DOCS / "reference" / "settings.md").read_text()))
    own = {f"TIDEGATE_{name.upper()}" for name in Settings.model_fields if name != "spark"}
    source = (ROOT / "operator" / "tidegate" / "spark" / "settings.py").read_text()
    spark = {
        f"TIDEGATE_SPARK_{name}" for name in re.findall(r"""\.(?:text|number|one_of|conf)\(\s*"([A-Z_]+)\"""", source)
    }

    assert documented == own | spark


@pytest.mark.parametrize("page", sorted({*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/README.md")}), ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"

"""The picture of the code follows the import contracts, and the page names modules that there are."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from support.scripts import loaded

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "operator" / "tidegate"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    return loaded(ROOT / "docs" / "generate_architecture.py")


def test_the_picture_is_that_of_the_contracts(drawing: ModuleType) -> None:
    wanted = drawing.drawn(drawing.floors())

    assert drawing.PICTURE.read_text() == wanted, "run: .venv/bin/python docs/generate_architecture.py"


def test_every_package_has_a_floor_and_a_sentence(drawing: ModuleType) -> None:
    rooms = {room.name: room.sentence for floor in drawing.floors() for room in floor}
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    there |= {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}

    assert set(rooms) == there
    assert all(rooms.values())


def test_an_out_of_date_picture_is_noticed(
    drawing: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drawing, "PICTURE", tmp_path / "architecture.svg")
    assert drawing.main(["--check"]) == 1
    assert "is out of date" in capsys.readouterr().err
    assert drawing.main([]) == 0
    assert drawing.main(["--check"]) == 0


def test_the_page_names_modules_that_there_are() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", PAGE.read_text())

    assert len(named) > 30
    assert [name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []

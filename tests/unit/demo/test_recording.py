"""The recording of the demo: one SVG that asks nobody for anything and shows each moment for its time."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from demo.picture import Picture, Row
from demo.recording import RecordingScreen

_SVG = "{http://www.w3.org/2000/svg}"


def test_each_moment_is_a_frame_in_the_order_of_the_story(tmp_path: Path) -> None:
    file = tmp_path / "pictures" / "demo.svg"
    with RecordingScreen(file) as screen:
        screen.act("kubectl apply -f reset.yaml", "kind: OffsetReset", "created")
        screen.show(_picture("a group reads"))
        screen.show(_picture("a group reads"))
        screen.show(_picture("it is <paused>", is_paused=True))
        screen.verdict([(True, "nothing lost")], well=True)

    root = ET.fromstring(file.read_text())  # noqa: S314 - written above
    frames = [" ".join(frame.itertext()) for frame in root.iter(f"{_SVG}g") if frame.get("class") == "frame"]

    assert [
        next(word for word in ("apply", "reads", "<paused>", "lost") if word in _plain(frame)) for frame in frames
    ] == [
        "apply",
        "reads",
        "<paused>",
        "lost",
    ]
    shown = re.findall(
        r"@keyframes k\d+ \{ (?:0% \{ visibility: hidden \} )?([\d.]+)% .*? ([\d.]+)% ", file.read_text()
    )
    assert shown == [("0.000", "22.222"), ("22.222", "33.333"), ("33.333", "44.444"), ("44.444", "100.000")]


def test_nothing_is_asked_of_another_host(tmp_path: Path) -> None:
    file = tmp_path / "demo.svg"
    with RecordingScreen(file) as screen:
        screen.show(_picture("a group reads"))

    assert re.findall(r"https?://[^\s\"']+", file.read_text()) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in file.read_text()


def test_a_demo_that_failed_leaves_no_recording(tmp_path: Path) -> None:
    file = tmp_path / "demo.svg"
    with pytest.raises(ValueError, match="no broker"), RecordingScreen(file) as screen:
        _fail(screen)

    assert not file.exists()


def _fail(screen: RecordingScreen) -> None:
    screen.show(_picture("a group reads"))
    raise ValueError("no broker")


def _plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def _picture(headline: str, *, is_paused: bool = False) -> Picture:
    return Picture(headline, [Row(("orders", 0), "c0", 5, 7, 9, None, is_paused)])

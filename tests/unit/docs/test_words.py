"""The documents use the field's words: none that ``dev/prose/words.toml`` lists, and none twice in a row."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).resolve().parents[3]
LIST: Final = ROOT / "dev" / "prose" / "words.toml"
GENERATED: Final = {"consumergrouppause.md", "kafkaconnection.md", "offsetreset.md", "offsetresetpolicy.md"}
PAGES: Final = sorted(
    page
    for page in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("charts/*/README.md"),
        *ROOT.glob("agents/*/README.md"),
    )
    if page.name not in GENERATED and not {"adr", "benchmarks"} & set(page.relative_to(ROOT).parts)
)
CRDS: Final = sorted((ROOT / "crds").glob("*.tidegate.io.yaml"))

NOT_PROSE: Final = re.compile(
    r"^ *```.*?^ *```|<!-- begin ([a-z ]+) -->.*?<!-- end \1 -->|<!--.*?-->|`(?:[^`\n]|\n(?!\n))*`|(?<=\])\([^)\s]*\)",
    re.MULTILINE | re.DOTALL,
)
TWICE: Final = re.compile(r"(?<![\w-])([a-z]+)(?:[ \t]+|[ \t]*\n[ \t]*)\1(?![\w-])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Word:
    """One to avoid. ``ok``: where it is right."""

    find: re.Pattern[str]
    use: str
    ok: re.Pattern[str] | None = None


def words() -> tuple[Word, ...]:
    return tuple(
        Word(
            re.compile(rf"(?<![\w-])(?:{each['find']})(?![\w-])".replace(" ", r"\s+"), re.IGNORECASE),
            each["use"],
            re.compile(rf"\b(?:{each['ok']})".replace(" ", r"\s+"), re.IGNORECASE) if "ok" in each else None,
        )
        for each in tomllib.loads(LIST.read_text())["word"]
    )


WORDS: Final = words()


def faults(text: str) -> Iterator[str]:
    """Line number, what is written there, what to write."""
    prose = NOT_PROSE.sub(lambda code: re.sub(r"[^\n]", "\0", code[0]), text)
    for word in WORDS:
        right = [found.span() for found in word.ok.finditer(prose)] if word.ok else []
        for found in word.find.finditer(prose):
            if not any(start <= found.start() and found.end() <= end for start, end in right):
                yield f"{_line(prose, found)}: {_shown(found)}: write {word.use}"
    for found in TWICE.finditer(prose):
        yield f"{_line(prose, found)}: {_shown(found)}: the word is there twice"


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


def _shown(found: re.Match[str]) -> str:
    return f"'{' '.join(found[0].split())}'"


def descriptions(node: Any) -> Iterator[str]:
    """Those of a schema's fields, wherever they are."""
    if isinstance(node, dict):
        if isinstance(node.get("description"), str):
            yield node["description"]
        for child in node.values():
            yield from descriptions(child)
    elif isinstance(node, list):
        for child in node:
            yield from descriptions(child)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_fields_words(page: Path) -> None:
    assert "\n".join(f"{page.relative_to(ROOT)}:{fault}" for fault in faults(page.read_text())) == ""


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.name)
def test_descriptions_of_fields_use_the_fields_words(path: Path) -> None:
    told = descriptions(yaml.safe_load(path.read_text()))

    assert "\n".join(f"{text!r}: {fault}" for text in told for fault in faults(text)) == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The partition stands\nstill.", "1: 'stands still': write is paused, or is stalled"),
        ("It goes\n\nbehind the last one.", "3: 'behind': write past or after (in Kafka, behind means lagging)"),
        ("Its offsets are put all back.", "1: 'put all back': write roll back, or restore"),
        ("Read the the log.", "1: 'the the': the word is there twice"),
    ],
)
def test_a_word_to_avoid_is_found(text: str, fault: str) -> None:
    assert list(faults(text)) == [fault]


@pytest.mark.parametrize(
    "text",
    [
        "A mirror that lags behind.",
        "`stands still`, and\n```\nput back\n```\nno more.",
        "<!-- begin metrics -->\n| it came by |\n<!-- end metrics -->",
        "[a page](put-it-back.md)",
    ],
)
def test_code_links_and_generated_tables_are_not_looked_at(text: str) -> None:
    assert list(faults(text)) == []

"""The documents as a site (``make site``), in Debian's Chromium."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from support.chromium import Browser

pytestmark = [pytest.mark.e2e_cluster, pytest.mark.nightly]

PROJECT: Final = Path(__file__).resolve().parents[3]
SITE: Final = PROJECT / "build" / "site"


@pytest.fixture(scope="module")
def pages() -> dict[Path, int]:
    """How many diagrams each page with any has."""
    subprocess.run(["make", "-C", str(PROJECT), "site"], check=True, stdin=subprocess.DEVNULL)
    counted = {page: page.read_text(encoding="utf-8").count('<pre class="mermaid">') for page in SITE.rglob("*.html")}
    return {page: count for page, count in counted.items() if count}


def test_diagrams_are_drawn_and_nothing_is_asked_of_another_host(pages: dict[Path, int]) -> None:
    sources = [page for page in (PROJECT / "docs").rglob("*.md") if "```mermaid" in page.read_text(encoding="utf-8")]
    assert len(pages) == len(sources)
    with Browser() as browser:
        for page, count in pages.items():
            browser.open(page.as_uri())
            # One that can't be read stays as its source.
            browser.until(f"document.querySelectorAll('div.mermaid').length === {count}", f"{page.name} is drawn")
        assert [url for url in browser.requests if not url.startswith(("file:", "data:", "about:"))] == []

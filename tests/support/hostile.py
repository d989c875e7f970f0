"""Text that somebody hostile would choose, and what a browser makes of a page that shows it."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

HOSTILE: Final = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    "\x1b[31m\x9b2J\x1b]0;owned\x07\u202eevil\r\n\ud800 {x}%s[red]"
)


class Elements(HTMLParser):
    """What a browser would make of a page: elements, attributes, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

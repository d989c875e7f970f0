"""Foreign text made fit to be shown: what would drive a terminal, end a line, hide or reorder text is escaped. Pure."""

from __future__ import annotations

import unicodedata
from typing import Final

_ESCAPED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's general categories of control and format characters (which overrides of the writing direction and invisible
ones are), lone surrogates, and line and paragraph separators."""


def visible(text: str) -> str:
    """``text`` on one line, with each such character as Python writes it (``\\x1b``, ``\\u202e``).

    Doing it again changes nothing. A backslash stays as it is, so this tells a person what is there, not a parser.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if unicodedata.category(c) in _ESCAPED else c for c in text)


def visible_bytes(raw: bytes, limit: int) -> tuple[str, bool]:
    """The text of bytes that may be UTF-8, at most ``limit`` characters of it, and whether that is less than all.

    What is no UTF-8 is shown byte by byte (``\\xff``).
    """
    text = visible(raw.decode(errors="backslashreplace"))
    return text[:limit], len(text) > limit


def shortened(text: str, most: int, end: int) -> str:
    """At most ``most`` characters of a text of somebody else's choice, the last ``end`` among them."""
    return text if len(text) <= most else f"{text[: most - end - 3]}...{text[-end:]}"

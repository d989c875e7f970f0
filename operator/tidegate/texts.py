"""Texts that are kept thousands of times are kept once: names of groups, topics and fields, phases, reasons."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 128
"""Longer ones are messages, which hardly any two objects have in common."""


class Texts:
    """Gives equal texts as the same object. Thread-safe.

    Not ``sys.intern``: in some versions of Python what is interned stays for ever, and anybody who may write a record
    or a resource could have more and more kept. This keeps at most ``most`` texts, and then begins anew.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def once(self, text: str) -> str:
        if len(text) > _LONGEST:
            return text
        known = self._known.get(text)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            self._known = {}
        return self._known.setdefault(text, text)

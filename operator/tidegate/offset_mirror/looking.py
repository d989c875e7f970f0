"""How soon a source is asked for its ends again: soon while it grows, within what many partitions may cost. Pure."""

from __future__ import annotations

from typing import Final

_LEAST_S: Final = 0.05
_WOKEN_PER_S: Final = 200
"""How many partitions are woken a second to copy what there is."""
_ASKED_PER_S: Final = 20_000
"""How many partitions' ends are asked for a second."""


class Looks:
    """``at_rest_s``: between two looks at a source that does not grow."""

    def __init__(self, at_rest_s: float) -> None:
        self._at_rest_s = at_rest_s
        self._pause_s = at_rest_s

    def next_s(self, asked: int, grown: int) -> float:
        """When to look again after a look at ``asked`` partitions, of which ``grown`` had waited for more."""
        least_s = max(_LEAST_S, grown / _WOKEN_PER_S, asked / _ASKED_PER_S)
        self._pause_s = min(self._at_rest_s, max(least_s, 0.0 if grown else 2 * self._pause_s))
        return self._pause_s

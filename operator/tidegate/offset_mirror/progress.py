"""How old what a copy has is: by when the source had how much. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

_SAMPLES: Final = 64
"""Of the source's end over time: enough to say within some percent how old what is copied is."""


class Progress:
    """Of one partition. Times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self.copied_at_s: float | None = None
        """When the source had what the copy has now."""
        self.source_end: int | None = None
        """The last stable offset, as it was seen last."""

    def saw(self, end: int, at_s: float) -> None:
        """The source ended there at that time."""
        self._samples.append((at_s, end))
        if len(self._samples) > _SAMPLES:
            # Every second one of the older ones goes: how old a copy is that is far behind need not be exact.
            kept = list(self._samples)
            self._samples = deque([*kept[: _SAMPLES // 2 : 2], *kept[_SAMPLES // 2 :]])

    def settle(self, offset: int | None, until_s: float | None = None) -> None:
        """The copy ends at ``offset``. Of what was seen of the source after ``until_s`` nothing counts: nobody has said
        since then that the copy still is as it was."""
        while offset is not None and self._samples and self._samples[0][1] <= offset:
            if until_s is not None and self._samples[0][0] > until_s:
                return
            self.copied_at_s = self._samples.popleft()[0]

"""The end of a process by kill -9, and the steps before one of which it comes."""

from __future__ import annotations


class Killed(BaseException):
    """kill -9: nothing of this process runs any more, no ``finally`` and no clean-up."""


class Steps:
    """Counts what a process does to the world, and ends it before one of these."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.dies_in: int | None = None

    def step(self, what: str) -> None:
        if self.dies_in is not None:
            if self.dies_in == 0:
                raise Killed
            self.dies_in -= 1
        self.log.append(what)

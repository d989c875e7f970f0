"""Did a target hold? Judged from the committed offsets that are seen after the owners were let go. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    QUIET = "Quiet"
    """Nobody has committed since: the target stands as committed."""
    SETTLED = "Settled"
    """The owner has committed progress that begins at the target."""
    OVERWRITTEN = "Overwritten"
    """Somebody committed an old position over the target."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One partition: the offset before the reset (``None`` without one), the target, and what was seen last."""

    before: int | None
    target: int
    seen: int | None

    @property
    def verdict(self) -> Verdict:
        """Judge the offset seen last.

        A commit below the target can only come from an old position. One above it is progress from the target: after
        the release, which is confirmed by reading the target back, nobody can commit the old position but an
        application that kept offsets to commit later; its own next commits then step back to what it reads now.
        """
        if self.seen == self.target:
            return Verdict.QUIET
        if self.seen is None or self.seen < self.target:
            return Verdict.OVERWRITTEN
        return Verdict.SETTLED

    @property
    def is_old(self) -> bool:
        """Whether what was seen is an owner's progress from before the reset, and none from the target.

        Where there was no commit before, what was committed since is taken for that.
        """
        if self.seen == self.target:
            return False
        if self.seen is None or self.before is None:
            return True
        return self.seen < self.target or self.target < self.before <= self.seen

    @property
    def overwritten_before_release(self) -> bool:
        """Judge an offset read just as the owners were let go: too early for progress that reaches the old place."""
        if self.seen == self.target:
            return False
        if self.seen is None or self.before is None:
            return True
        # Ahead of where the group was, old and new positions cannot be told apart: done again, to be sure.
        return self.seen < self.target or self.before <= self.target or self.seen >= self.before

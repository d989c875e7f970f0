"""What one writer of a run has found out and done so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying.rounds import NO_PARTITIONS, Partitions
from tidegate.reset.model.plan import Plan
from tidegate.resources.reset import Way


@dataclass(slots=True)
class Away:
    """Kafka is away ``since`` (monotonic seconds); it is asked again after ``pause_s``. ``why``: its last failure."""

    since: float
    pause_s: float
    why: str = ""


@dataclass(slots=True)
class RunState:
    """Read and written by all that takes part in the run, from its one thread.

    ``targets``: the plan's, and what stood there before the run once the run is being put back. ``before``: where the
    group stood before the run. ``round``: the number of the last round. ``redone``: partitions done again.
    """

    plan: Plan
    targets: dict[TopicPartition, int]
    gated: bool
    """Whether gates of the run may be closed."""
    before: dict[TopicPartition, int] = field(default_factory=dict)
    newest: dict[TopicPartition, int] = field(default_factory=dict)
    """As ``before``, with what owners have committed as they let go, or perhaps from the targets on."""
    told_before: bool = False
    """Whether the journal has ``before`` from this writer."""
    round: int = 0
    redone: int = 0
    way: Way | None = None
    kept_position: bool = False
    """As in ``tidegate.reset.ways.Owners``, like the next three."""
    kept_after_leaving: bool = False
    handed_in: bool = False
    transaction_open: bool = False
    unverified: Partitions = NO_PARTITIONS
    """Partitions whose targets are committed and of which no watch has shown that they hold."""
    not_held: Partitions = NO_PARTITIONS
    """What the sequence of the last round left to the next one."""
    doubtful: Partitions = NO_PARTITIONS
    """Partitions whose owner may have begun at an old commit, or reads very fast: what is committed does not tell."""
    away: Away | None = None
    putting_back: tuple[str, str] | None = None
    """The reason and the message for which the run's offsets are being put back."""

    @property
    def replaced(self) -> dict[TopicPartition, int]:
        """What the targets take the place of: the offsets before the run, or the run's own when they are put back."""
        return self.plan.targets if self.putting_back else self.newest

    def stood_at(self, before: dict[TopicPartition, int]) -> None:
        """Take up where the group stood before the run."""
        self.before, self.newest = before, dict(before)

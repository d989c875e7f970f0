"""How long the leader of a group waits for what, and how far it says that it is."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.kafka.model import Seat, TopicPartition


@dataclass(frozen=True, slots=True)
class Pacing:
    """Seconds. ``session_s``: for how long after our last heartbeat the partitions stay nobody's. ``beat_s``: between
    two heartbeats. ``heartbeat_s``: between those of the group's own members. ``standstill_s``: how long members may
    be kept in a join that we hold. ``yields_s``: how long members of a cooperative group may take to give something up
    before another rebalance asks for it. ``others_s``: how long a successor waits for all who want something."""

    session_s: float = 20.0
    beat_s: float = 1.0
    heartbeat_s: float = 3.0
    look_s: float = 0.05
    standstill_s: float = 30.0
    topics_s: float = 5.0
    yields_s: float = 5.0
    others_s: float = 10.0
    again_s: float = 10.0
    again_at_most_s: float = 160.0


@dataclass(frozen=True, slots=True)
class Report:
    """How far it is. ``withheld``: partitions that are nobody's, surely. ``trouble``: why not all of them are, for a
    person; ``is_refused``: trying again does not help. ``lost``: how often a group that was led has gone on without our
    member although something was to be withheld. ``ended``: it leads no more, and nobody of ours is in the group."""

    seat: Seat | None = None
    withheld: frozenset[TopicPartition] = frozenset()
    trouble: str = ""
    is_refused: bool = False
    lost: int = 0
    ended: bool = False

"""How many connections a server has open, of whom, and who gives way when there is no room. Pure; not thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Seat:
    """One connection's place. ``close``: ends the connection. ``answering``: its request was read, and is being
    answered: it gives way to nobody. ``since_s``: for whoever keeps its time.
    """

    address: str
    close: Callable[[], None]
    answering: bool = False
    since_s: float = 0.0


@dataclass(slots=True)
class Seats:
    """Those taken, the oldest first. ``connections``: at once; ``per_address``: of these, from one address."""

    connections: int
    per_address: int
    _taken: dict[str, list[Seat]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Seat]:
        return iter([seat for seats in self._taken.values() for seat in seats])

    def __len__(self) -> int:
        return sum(len(seats) for seats in self._taken.values())

    def take(self, address: str, close: Callable[[], None]) -> Seat | None:
        """A seat for a new connection; ``None``: there is no room for it.

        Where all are taken, the oldest connection that is not being answered gives way: of the address itself where
        that has as many as it may have, or else of the address that has most, if those are more than this one's.
        """
        own = len(self._taken.get(address, ()))
        if own >= self.per_address:
            if not self._give_way(address):
                return None
        elif len(self) >= self.connections:
            most = max(self._taken, key=lambda one: len(self._taken[one]))
            if len(self._taken[most]) <= own or not self._give_way(most):
                return None
        seat = Seat(address, close)
        self._taken.setdefault(address, []).append(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """Idempotent."""
        seats = self._taken.get(seat.address, [])
        if seat in seats:
            seats.remove(seat)
        if not seats:
            self._taken.pop(seat.address, None)

    def _give_way(self, address: str) -> bool:
        for seat in self._taken[address]:
            if not seat.answering:
                self.leave(seat)
                seat.close()
                return True
        return False

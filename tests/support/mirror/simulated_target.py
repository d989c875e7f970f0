"""One partition of a target in memory, as the port that writers use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.mirror.target_broker import INVALID_EPOCH, TargetBroker
from tidegate.mirror.model import Appended, Done, Refusal, Tail


@dataclass
class SimulatedTarget:
    """Implements `tidegate.mirror.ports.Target`. ``between``: called before each request."""

    broker: TargetBroker
    between: Callable[[], None] = lambda: None

    def tail(self, window: int) -> Tail:
        self.between()
        return self.broker.tail(window)

    def append(self, batches: tuple[bytes, ...]) -> Appended:
        self.between()
        return Appended(tuple(self.broker.produce(data) for data in batches))

    def write_markers(self, producer_id: int, epoch: int, count: int) -> Done | Refusal:
        self.between()
        written = [self.broker.write_marker(producer_id, epoch) for _ in range(count)]
        return Done() if all(written) else INVALID_EPOCH

    def delete_records(self, offset: int) -> Done:
        self.between()
        self.broker.delete_records(offset)
        return Done()

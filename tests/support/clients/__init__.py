"""Unmodified, ordinary Kafka clients as real processes, and producers that remember what was acknowledged."""

from support.clients.fleet import Commit, ConsumerFleet, Event, EventKind, FleetError
from support.clients.options import ClientKind, CommitMode, ConsumerOptions, GroupProtocol
from support.clients.producer import Line, ProduceError, SteadyProducer, produce_all
from support.deliveries import Delivery, Partition

__all__ = [
    "ClientKind",
    "Commit",
    "CommitMode",
    "ConsumerFleet",
    "ConsumerOptions",
    "Delivery",
    "Event",
    "EventKind",
    "FleetError",
    "GroupProtocol",
    "Line",
    "Partition",
    "ProduceError",
    "SteadyProducer",
    "produce_all",
]

"""A run's own gates: whose word counts."""

from collections.abc import Collection, Mapping

from support.fake_kafka import FakeClock, FakeKafka
from tidegate.control.records import Ack, Hold
from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition
from tidegate.reset.applying.gates import Reopened, RunGates
from tidegate.reset.applying.timing import Pace, Tuning

P = TopicPartition("orders", 0)


class Owned(FakeKafka):
    """One member owns the partition, whatever else is true."""

    def groups(self, group_ids: Collection[str]) -> Mapping[str, Group]:
        member = Member("owner", "client", "host", assignment=frozenset({P}))
        return {g: Group(g, GroupState.STABLE, GroupType.CONSUMER, members=(member,)) for g in group_ids}


def test_only_its_owner_says_that_a_partition_goes_on() -> None:
    clock = FakeClock()
    kafka = Owned(clock)
    gates = RunGates(kafka, Pace(clock, Tuning(), None), "payments", "uid/one", Hold())
    assert gates.obstacle() is None
    epochs = gates.close([P])
    gates.open()

    kafka.control.ack("payments", P.topic, P.partition, Ack(epochs[P] + 1, 0, "somebody else"))
    assert gates.reopened(epochs) == Reopened(frozenset(), frozenset())

    kafka.control.ack("payments", P.topic, P.partition, Ack(epochs[P] + 1, 0, "owner"))
    assert gates.reopened(epochs) == Reopened(frozenset({P}), frozenset())

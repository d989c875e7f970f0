"""What of a group's place on another cluster can be looked for here."""

from datetime import timedelta

import pytest

from support.fake_kafka import FakeClock, FakeKafka
from tidegate.find.survey import survey
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.reset.model.request import RunRequest, Selection
from tidegate.reset.model.targets import FromCluster
from tidegate.reset.planning.refusals import PlanRefused


def test_topics_that_the_group_does_not_read_over_there_are_named() -> None:
    clock = FakeClock()
    here, there = FakeKafka(clock), FakeKafka(clock)
    for cluster, names in ((here, ["old.orders", "refunds"]), (there, ["orders", "refunds"])):
        for name in names:
            cluster.create_topic(name, 1)
    there.commit_directly("payments", {TopicPartition("orders", 0): 0})
    target = FromCluster(Connection("there:9092"), "payments", ("key",), timedelta(hours=1))
    selections = (Selection("old.orders"), Selection("refunds"))
    request = RunRequest("u", "r", "payments", Connection("here:9092"), selections, target)

    with pytest.raises(PlanRefused) as refused:
        survey(request, target, here, there)  # type: ignore[arg-type]

    assert refused.value.reason == "NoTopicOverThere"
    assert "of old.orders, refunds, the group of to.cluster reads none over there" in refused.value.message
    assert "to.cluster.alias" in refused.value.message

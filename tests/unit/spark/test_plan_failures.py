"""What an executor meets while it plans is to the driver what it would be in one process: tried again, or final."""

from __future__ import annotations

import pytest

from tidegate.kafka.errors import (
    CommitRefused,
    KafkaFailure,
    NotAuthenticated,
    NotAuthorized,
    OutcomeUnknown,
    Refused,
    Unavailable,
    UnknownPartitions,
)
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.metadata import Unreadable
from tidegate.kafka_client.settings import BadConnection
from tidegate.spark.plan_steps import _told
from tidegate.spark.planning import _revived


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Unavailable("away"), Unavailable),
        (NotAuthenticated("the password is wrong, or was just changed"), Unavailable),
        (Unreadable("half an answer"), Unavailable),
        (NotAuthorized("no Describe"), NotAuthorized),
        (Refused("no"), Refused),
        (CommitRefused("no"), Refused),
        (BadConnection("no such file"), Refused),
        (UnknownPartitions(frozenset({TopicPartition("orders", 9)})), UnknownPartitions),
        (OutcomeUnknown("what"), KafkaFailure),
        (KafkaFailure("what"), KafkaFailure),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else "",
)
def test_a_failure_of_an_executor_is_the_drivers(failure: KafkaFailure | BadConnection, kind: type) -> None:
    revived = _revived(*_told(failure))

    assert (type(revived), str(revived)) == (kind, str(failure))

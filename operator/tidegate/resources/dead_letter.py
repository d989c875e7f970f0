"""Where a record is copied to before its group skips it."""

from __future__ import annotations

from typing import Annotated, Final

from tidegate.resources.base import ResourceModel
from tidegate.resources.rules import topic

MOST_COPIED: Final = 10
"""How many offsets a reset may skip, at most, that copies what it skips."""

DeadLetterTopicName = Annotated[
    str,
    topic(r"[a-zA-Z0-9._-]+", "must be a topic name: letters, digits, '.', '_' and '-', 1 to 249 characters", most=249),
]


class DeadLetterSpec(ResourceModel):
    """A dead-letter topic."""

    topic: DeadLetterTopicName
    """The topic's name, in the same Kafka cluster. The topic has to exist, and the KafkaConnection has to allow it in
    allow.deadLetterTopics. A record is copied to the partition with the same number as its own; if this topic has fewer
    partitions, to that number modulo how many it has."""

"""``spec.audit`` of a KafkaConnection: where changes of offsets are recorded."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from tidegate.resources.base import ResourceModel
from tidegate.resources.rules import topic

AuditTopicName = Annotated[
    str,
    topic(r"[a-zA-Z0-9._-]+", "must be a topic name: letters, digits, '.', '_' and '-', 1 to 249 characters", most=249),
]


class AuditSpec(ResourceModel):
    """The audit topic."""

    topic: AuditTopicName = "__tidegate_audit"
    """The topic's name. The operator creates the topic if it is missing, with one partition and a retention of a year.
    It never changes a topic that exists: that topic's retention.ms says how long records are kept."""

    required: StrictBool = False
    """If true, a reset that can't be recorded fails before it changes anything. Otherwise, it is carried out, and its
    status says that it was not recorded. A rollback is always carried out."""

    replication_factor: Annotated[StrictInt, Field(ge=1, le=32767)] | None = None
    """The replication factor if the topic has to be created. The default is three, or the number of brokers if there
    are fewer."""

"""``spec.freeze`` of a KafkaConnection: nothing new begins through it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.resources.base import ResourceModel
from tidegate.resources.fields import Timestamp


class FreezeSpec(ResourceModel):
    """Who has frozen the connection, when and why: for people. Nothing of it is checked."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Why nothing new may begin."""

    by: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Who froze the connection. The command tidegate freeze writes the name by which the API server knows its
    caller."""

    since: Timestamp | None = None
    """Since when the connection is frozen."""

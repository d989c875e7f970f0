"""Kafka's numbers, with the bounds that its protocol has for them, for models that are read from documents."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

PARTITION_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1

PartitionNumber = Annotated[int, Field(ge=0, le=PARTITION_MAX)]

Offset = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
"""The position of a record."""

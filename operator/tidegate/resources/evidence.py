"""What is gathered about a reset's plan."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from tidegate.resources.base import ResourceModel
from tidegate.resources.durations import parse_duration
from tidegate.resources.fields import PositiveDuration
from tidegate.resources.rules import rule


class EvidenceLevel(StrEnum):
    """``COUNTS``: histograms by the brokers' time index; ``RECORDS``: also what reading records by Spark tells.
    ``AUTO``: as ``RECORDS`` where approval is Manual, as ``NONE`` where nobody waits for it.
    """

    AUTO = "Auto"
    NONE = "None"
    COUNTS = "Counts"
    RECORDS = "Records"


class EvidenceSpec(ResourceModel):
    """What is gathered about a plan for whoever approves it."""

    level: EvidenceLevel = EvidenceLevel.AUTO
    """How much is gathered. Counts are records by time, from the brokers' time index, without reading any. Records
    reads them by Spark, for bytes, different keys, and a few samples around each target; without Spark it gathers
    counts. Auto means Records where approval is Manual, and None where it is Automatic."""

    show_values: StrictBool = False
    """Whether the beginnings of the samples' keys and values are stored in the plan's ConfigMap and shown. Otherwise
    their sizes and salted digests are."""

    max_records: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] = 1_000_000
    """How many records are read at most, spread over all that would be replayed or skipped. Where there are more, bytes
    are estimated and different keys are a lower bound, and the plan says so."""

    timeout: PositiveDuration = parse_duration("1m")
    """How long gathering may take. What was gathered by then is kept, and the plan says what is missing."""

    @rule(
        "!self.showValues || self.level in ['Auto', 'Records']",
        "showValues needs records to be read: use level Records or Auto, or leave showValues out",
    )
    def _values_are_of_records(self) -> bool:
        return not self.show_values or self.level in (EvidenceLevel.AUTO, EvidenceLevel.RECORDS)

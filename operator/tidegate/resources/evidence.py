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
    """How much is gathered. Counts gathers the numbers of records by time from the brokers' time index, without reading
    any record. Records also reads records with Spark, for their bytes, the number of different keys, and a few samples
    around each target; without Spark it gathers the same as Counts. Auto means Records if approval is Manual, and None
    if it is Automatic."""

    show_values: StrictBool = False
    """If true, the beginnings of the samples' keys and values are stored in the plan's ConfigMap and shown. Otherwise,
    their sizes and salted digests are stored and shown instead."""

    max_records: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] = 1_000_000
    """The maximum number of records to read, spread over all that would be replayed or skipped. If there are more, the
    bytes are estimated, the number of different keys is a lower bound, and the plan says so."""

    timeout: PositiveDuration = parse_duration("1m")
    """How long gathering may take. What was gathered by then is kept, and the plan says what is missing."""

    @rule(
        "!self.showValues || self.level in ['Auto', 'Records']",
        "showValues needs records to be read: use level Records or Auto, or leave showValues out",
    )
    def _values_are_of_records(self) -> bool:
        return not self.show_values or self.level in (EvidenceLevel.AUTO, EvidenceLevel.RECORDS)

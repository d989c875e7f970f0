"""What a Kafka Streams application leaves in its group's commits."""

from __future__ import annotations

import base64
from typing import Final

_AT_MS: Final = (1_790_000_000_000).to_bytes(8)

METADATA_1: Final = base64.b64encode(b"\x01" + _AT_MS).decode()
"""Of a commit of Kafka Streams 2.4 to 3.3."""
METADATA_2: Final = base64.b64encode(b"\x02" + _AT_MS).decode()
"""Of a later one. Processors may add to it."""
METADATA_2_WITH_A_TIME: Final = base64.b64encode(
    b"\x02" + _AT_MS + (1).to_bytes(4) + (3).to_bytes(4) + b"agg" + _AT_MS
).decode()
"""Of one in which a processor has: the time when it emitted last."""

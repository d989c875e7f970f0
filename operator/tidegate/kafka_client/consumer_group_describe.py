"""ConsumerGroupDescribe (KIP-848; its version 1: KIP-1099), which kafka-python does not know.

kafka-python makes its request classes out of Kafka's schemas; the two of this request lie beside this file. Decoding an
answer needs the class to be known (``ResponseClassRegistry``), so both are here.
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Describe groups of the consumer protocol; others are answered with GROUP_ID_NOT_FOUND."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """``ConsumerGroupDescription`` of Kafka's admin client; a member's ``assignment`` and ``target_assignment``."""

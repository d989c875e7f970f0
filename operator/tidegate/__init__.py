"""Tidegate: pauses partitions and resets offsets of live Kafka consumer groups, on stock brokers and clients."""

__version__ = "0.1.0"

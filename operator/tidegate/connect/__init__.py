"""Kafka Connect: what Tidegate asks of its workers."""

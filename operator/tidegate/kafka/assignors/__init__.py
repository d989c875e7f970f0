"""Kafka's assignors of classic groups in Python: what a group's own leader would give its members. Pure."""

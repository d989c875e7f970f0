"""Runs in a consumer's process and makes it obey gates: partitions of a live group are paused from outside."""

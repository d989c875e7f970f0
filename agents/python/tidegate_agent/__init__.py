"""Runs in a consumer's process and makes it obey gates: partitions of a live group are paused from outside."""

__version__ = "0.1.0"

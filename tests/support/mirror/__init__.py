"""Logs, brokers and writers for the tests of mirrored partitions."""

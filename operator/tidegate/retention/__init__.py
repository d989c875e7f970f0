"""Keeping a group's place beyond the brokers' retention of offsets (KIP-211)."""

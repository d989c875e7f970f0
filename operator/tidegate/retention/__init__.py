"""Keeping the committed offsets of a group without members beyond the brokers' retention (KIP-211)."""

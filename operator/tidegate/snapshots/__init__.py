"""Backups of the offsets of all groups: when one is due, where it is stored, and how a group is restored from it."""

"""Holds that nobody lets go of any more: found, told and released (docs/adr/0016)."""

"""A partition copied to another cluster with the same offsets: what to do next, from the source's log and the target's.

Pure: no I/O, no threads, no clock (``docs/adr/0049-mirror-by-sequence-numbers.md``).
"""

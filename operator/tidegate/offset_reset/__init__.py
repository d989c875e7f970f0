"""``OffsetReset``: one pass over it."""

"""``OffsetReset``: one pass over it, and over whatever else asks for resets."""

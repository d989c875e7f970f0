"""``OffsetResetPolicy``: one pass over it, and the seam to its features."""

"""``OffsetResetPolicy``: one pass over it, and the interface of the features that it configures."""

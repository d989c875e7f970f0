"""``OffsetResetApproval``: what one says of itself. Which one counts is decided in ``offset_reset/approvals.py``."""

"""``OffsetResetApproval``: what one says of itself. Which one counts: ``offset_reset/approval_choice.py``."""

"""From a plan to offsets that are committed and read back, in a group that is live."""

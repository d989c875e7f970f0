"""From a plan to offsets that are committed and read back while the group is live."""

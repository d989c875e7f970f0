"""Where all groups of a cluster stood, written down by a schedule and found again. Pure: jobs read and write it."""

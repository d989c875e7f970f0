"""Records that their consumer does not get past: found, told of, and offered to be skipped."""

"""From a target to the offsets that a run will commit, partition by partition."""

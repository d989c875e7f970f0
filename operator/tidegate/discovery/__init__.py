"""New partitions are found, told to the agents, and given a start before a group at ``latest`` skips their records."""

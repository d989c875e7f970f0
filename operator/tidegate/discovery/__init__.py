"""New partitions: found, announced to the agents, and given a first offset before ``latest`` skips records."""

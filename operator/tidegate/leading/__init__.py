"""Leading a classic group for as long as partitions of it are to be nobody's: any client, no agent."""

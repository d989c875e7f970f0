"""A run from its request to its result: what is to be done next, and who does it."""

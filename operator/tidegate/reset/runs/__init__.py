"""A run from its request to its result: what happens next, and where it is carried out."""

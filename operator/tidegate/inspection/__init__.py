"""A look at a whole cluster, by reading only: what is about to go wrong with its groups' offsets, and what could not be
seen."""

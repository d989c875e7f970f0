"""Topics are copied to another cluster with the same offsets for as long as an OffsetMirror is there."""

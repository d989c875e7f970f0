"""One reset of a group's offsets: how it is planned, applied, verified and recorded."""

"""Finding offsets by what records hold: which records to look at, and when to stop. Pure; Spark does the looking."""

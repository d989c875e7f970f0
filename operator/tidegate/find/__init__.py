"""Finding offsets by what records contain: which records to read, and when to stop. Pure; Spark reads them."""

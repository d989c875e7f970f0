"""Random schedules of resets, pauses and faults on three brokers, each judged by its history: ``make campaign``."""

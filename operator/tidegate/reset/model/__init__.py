"""The values of a reset: where to, what it would do, what was asked, and how it went.

Only values; pydantic reads and writes them as JSON (``tidegate.reset.codec``), because they travel between the
operator, the Spark driver and its executors.
"""

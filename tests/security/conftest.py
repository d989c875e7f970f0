"""One Spark session for all tests that plan in this process."""

from support.spark_session import spark

__all__ = ["spark"]

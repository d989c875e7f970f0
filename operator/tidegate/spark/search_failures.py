"""What a failed look at records means: that the condition can't be evaluated, or that the records could not be read."""

from __future__ import annotations

import re
from typing import Any, Final

from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.reset.planning.refusals import BAD_EXPRESSION, UNREADABLE_TIME, PlanRefused
from tidegate.spark.expression import spoken

_SPARKS: Final = "org.apache.spark."
_NOT_THE_CONDITION: Final = (
    "org.apache.",
    "KAFKA",
    "INTERNAL_ERROR",
    "FAILED_READ",
    "java.io.",
    "java.net.",
    "java.nio.",
    "java.util.concurrent.",
    "java.lang.InterruptedException",
    "java.lang.OutOfMemoryError",
)
"""Whose exceptions tell of brokers, executors and networks. What else is raised while a record is looked at, the
condition raises: a record's value that is no regular expression, for one."""


_CONNECTOR: Final = "org.apache.spark.sql.kafka010."
_CLIENT: Final = "org.apache.kafka."


def raise_if_a_time_is_too_large(error: Exception) -> None:
    """Raises ``PlanRefused`` where a record has a time that Spark has no number for, as of a producer that writes
    nanoseconds for milliseconds: its connector fails on it, whatever is asked of the records (``fromJavaTimestamp``).
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]

    if not isinstance(error, Py4JJavaError):
        return
    if str(_cause(error).getClass().getName()) != "java.lang.ArithmeticException":
        return
    if _was_thrown_in(error, _CONNECTOR):
        raise PlanRefused(
            UNREADABLE_TIME,
            "Spark can't read the records, since the time of one of them is beyond the year 294,000, as if its "
            "producer had written nanoseconds for milliseconds: search elsewhere by from and until, leave its "
            "partition out, or give the offsets yourself",
        ) from None


def raise_if_final(error: Exception, *, last: bool) -> None:
    """Raises ``PlanRefused`` for a condition that can't be evaluated, and a ``KafkaFailure`` after the last try.

    What the condition fails on may be in the exception's message, so that one is never told.
    """
    raise_if_a_time_is_too_large(error)
    kind, text = _root(error)
    if "AuthorizationException" in kind or "AuthenticationException" in kind:
        raise NotAuthorized(f"records can't be read: {text}") from error
    if not (kind.startswith(_NOT_THE_CONDITION) or _was_thrown_in(error, _CONNECTOR, _CLIENT)):
        raise PlanRefused(
            BAD_EXPRESSION, f"spec.to.record.where fails on a record, which is not shown: {kind}"
        ) from None
    if last:
        raise Unavailable(f"records can't be read: {text}") from error


def _cause(error: Any) -> Any:
    """The Java exception that began it."""
    found = error.java_exception
    while found.getCause() is not None:
        found = found.getCause()
    return found


def _was_thrown_in(error: Exception, *packages: str) -> bool:
    """Whether what began it was thrown by classes of these packages, or by what they called: whoever looks at a record
    is not called by those that read it."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]

    if not isinstance(error, Py4JJavaError):
        return False
    return any(str(frame.getClassName()).startswith(packages) for frame in _cause(error).getStackTrace())


def _root(error: Exception) -> tuple[str, str]:
    """Class and message of the Java exception that began it, or Spark's name for what went wrong."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
    from pyspark.errors import PySparkException, PythonException

    if isinstance(error, PythonException):
        # What Python says of it may have a record in it.
        return _SPARKS, "a Python worker of Spark's failed while it decoded values: its executor's log says more"
    if isinstance(error, PySparkException):
        return error.getCondition() or _SPARKS, spoken(error)
    if not isinstance(error, Py4JJavaError):
        return _SPARKS, str(error)
    found = _cause(error)
    kind = str(found.getClass().getName())
    # SparkArithmeticException, SparkRuntimeException and the like are an expression's; SparkException is a job's.
    of_expressions = re.fullmatch(r"org\.apache\.spark\.(Spark\w+Exception)", kind)
    return of_expressions[1] if of_expressions else kind, " ".join(str(found.getMessage()).split())

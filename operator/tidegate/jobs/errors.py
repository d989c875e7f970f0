"""What can go wrong between a runner and what it starts."""

from __future__ import annotations


class RunnerFailure(Exception):
    """The process could not be started, looked at or ended; the message says why. Nothing is known of the run."""


class BadSparkSpec(RunnerFailure, ValueError):
    """``spec.spark`` asks for something that can't be given; the message names the field and says what to do.

    A run that has begun meets it where less is allowed than was when it began.
    """

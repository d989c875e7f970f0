"""What kafka-python raises, in our terms."""

from __future__ import annotations

import ssl
from typing import Final

from kafka import errors as wire_errors

from tidegate.kafka.errors import KafkaFailure, NotAuthenticated, OutcomeUnknown, Refused, Unavailable
from tidegate.kafka_client.settings import BadConnection

RAISED: Final = (wire_errors.KafkaError, OSError, RuntimeError, BadConnection)
"""By kafka-python. ``RuntimeError``: somebody has closed the connections. ``BadConnection``: there is no token."""

_REFUSALS: Final = (
    wire_errors.SaslAuthenticationFailedError,
    wire_errors.UnsupportedSaslMechanismError,
    wire_errors.IllegalSaslStateError,
    wire_errors.AuthorizationError,
    BadConnection,
)
_INTERRUPTED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""TLS errors of a peer that is gone, not of one that refuses us."""


def is_refusal(error: BaseException) -> bool:
    """Whether a broker refuses who we are, or we refuse who it is."""
    if isinstance(error, wire_errors.KafkaConnectionError):
        # It has the error as its argument, or was raised while that was dealt with.
        causes = [cause for cause in (*error.args, error.__context__) if isinstance(cause, BaseException)]
        return any(isinstance(cause, ssl.SSLError) and is_refusal(cause) for cause in causes)
    return isinstance(error, _REFUSALS) or (isinstance(error, ssl.SSLError) and not isinstance(error, _INTERRUPTED))


def failure_of(error: BaseException, what: str, *, unknown: bool = False) -> KafkaFailure:
    """``unknown``: whether what was asked for was done."""
    if isinstance(error, KafkaFailure):
        return error
    said = str(error) if isinstance(error, wire_errors.KafkaError | BadConnection) else repr(error)
    if isinstance(error, wire_errors.BrokerResponseError) and error.args:
        said = str(error.args[0])  # without the error's name once more
    text = f"{what}: {said}"
    if is_refusal(error):
        return NotAuthenticated(text)
    if isinstance(error, wire_errors.IncompatibleBrokerVersion):
        return Refused(text)
    return OutcomeUnknown(text) if unknown else Unavailable(text)

"""What went wrong with a call to the API server, in words: what it answered, or why nobody did."""

from __future__ import annotations

import json
import ssl
from typing import Any, Final

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

NO_JSON: Final = "the answer is cut off, or no JSON"

_TOLD_LIMIT = 300
"""Characters of a text that is not ours: a server may say anything."""


def message_of(error: Any) -> str:
    """What the server says about itself in a ``kubernetes.client.exceptions.ApiException``."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


def is_already_there(error: object) -> bool:
    """Whether a 409 is for the name that is taken. There is another one: the count of a quota was just changed by
    somebody else, and nothing was made."""
    try:
        return bool(json.loads(getattr(error, "body", None) or "")["reason"] != "Conflict")
    except (TypeError, ValueError, KeyError):
        return True


def is_of_ending_namespace(error: object) -> bool:
    """Whether the API server refuses to make something because the namespace is being deleted
    (``NamespaceTerminatingCause``)."""
    return has_cause(error, "NamespaceTerminating")


def has_cause(error: object, reason: str) -> bool:
    """Whether an answer of the API server names this as one of its causes (``StatusCause`` of ``meta/v1``)."""
    try:
        causes = json.loads(getattr(error, "body", None) or "")["details"]["causes"]
        return any(cause.get("reason") == reason for cause in causes)
    except (TypeError, ValueError, KeyError, AttributeError):
        return False


def why_unanswered(error: HTTPError | OSError) -> str:
    """Why there is no answer, without urllib3's objects and the request's address: which server, and why."""
    cause = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
    server = _server(error)
    match cause:
        case NameResolutionError():
            return f"{server} can't be reached: its host name is unknown here"
        case NewConnectionError():
            return f"{server} can't be reached: {_system_error(cause)}"
        case ConnectTimeoutError():
            return f"{server} can't be reached: it did not answer in time"
        case ReadTimeoutError():
            return f"{server} did not answer in time"
        case SSLError():
            return f"{server} is not trusted: {_certificate_error(cause)}"
        case HTTPError():
            return f"the connection to {server} broke: {_told(cause)}"
        case _:
            return _told(cause)


def _server(error: BaseException) -> str:
    pool = getattr(error, "pool", None)
    if not isinstance(pool, urllib3.connectionpool.HTTPConnectionPool):
        return "the API server"
    host = f"[{pool.host}]" if ":" in pool.host else pool.host
    return f"the API server at {pool.scheme}://{host}:{pool.port}"


def _system_error(error: BaseException) -> str:
    cause = error.__cause__
    return _lowered(cause.strerror) if isinstance(cause, OSError) and cause.strerror else _told(error)


def _certificate_error(error: BaseException) -> str:
    cause = error.args[0] if error.args else None
    return cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else _told(error)


def _told(error: BaseException) -> str:
    return str(error)[:_TOLD_LIMIT]


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]

"""Connect's workers by their REST interface (KIP-26, stop: KIP-875).

Only the cluster's own URL is asked, and no redirect is followed.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlsplit

from tidegate.connect.answers import BadAnswer, decode_connector, says_not_found
from tidegate.connect.ports import ConnectCluster, Connector, ConnectRefused, ConnectUnavailable, TargetState

TIMEOUT_S: Final = 5.0
"""For connecting, and for each part of an answer."""

WHOLE_S: Final = 15.0
"""For a request as a whole: who answers byte by byte is cut off."""

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of an answer: a configuration is small, and a status has some 100 bytes a task; a trace of a failed one more."""

_TRY_AGAIN: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""Beside those of 500 and above. Conflict: the workers are rebalancing."""

_HUNG_UP: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Of TLS's failures those that are nobody's refusal: who was there has gone."""


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    body: bytes

    @property
    def is_not_found(self) -> bool:
        return self.code == HTTPStatus.NOT_FOUND and says_not_found(self.body)


class RestConnectWorkers:
    """Implements ``tidegate.connect.ports.ConnectWorkers``.

    ``timeout_s``, ``whole_s``: :data:`TIMEOUT_S` and :data:`WHOLE_S`. ``may_write``: whether it is this process's turn,
    asked before each request that sets something; Connect can't tell a successor's from it.
    """

    def __init__(
        self, timeout_s: float = TIMEOUT_S, whole_s: float = WHOLE_S, *, may_write: Callable[[], bool] = lambda: True
    ) -> None:
        self._timeout_s = timeout_s
        self._whole_s = whole_s
        self._may_write = may_write

    def look(self, cluster: ConnectCluster, name: str) -> Connector | None:
        described = self._request(cluster, "GET", _path(name))
        if described.is_not_found:
            return None
        status = self._request(cluster, "GET", _path(name, "status"))
        # There is none as long as no worker has begun it.
        is_begun = not status.is_not_found
        for answer in (described, *([status] if is_begun else [])):
            if answer.code != HTTPStatus.OK:
                raise _unexpected(cluster, answer.code)
        try:
            return decode_connector(name, described.body, status.body if is_begun else b"")
        except BadAnswer:
            raise _unreadable(cluster) from None

    def can_stop(self, cluster: ConnectCluster, name: str) -> bool:
        answer = self._request(cluster, "GET", _path(name, TargetState.STOPPED))
        # Another method is allowed there, or there is no such path.
        if answer.code == HTTPStatus.METHOD_NOT_ALLOWED or answer.is_not_found:
            return answer.code == HTTPStatus.METHOD_NOT_ALLOWED
        raise _unexpected(cluster, answer.code)

    def set_state(self, cluster: ConnectCluster, name: str, state: TargetState) -> None:
        if not self._may_write():
            raise ConnectUnavailable("this process does not hold the Lease: PUT was not sent")
        answer = self._request(cluster, "PUT", _path(name, state))
        if answer.is_not_found:
            raise ConnectRefused(f"Connect cluster {cluster.name} at {cluster.url} has no connector {name}")
        if not HTTPStatus.OK <= answer.code < HTTPStatus.MULTIPLE_CHOICES:
            raise _unexpected(cluster, answer.code)

    def _request(self, cluster: ConnectCluster, method: str, path: str) -> _Answer:
        headers = {"Accept": "application/json", **_login(cluster)}
        base = urlsplit(cluster.url).path
        try:
            with contextlib.closing(self._connection(cluster)) as connection:
                connection.connect()
                with self._cut_off_in_time(connection.sock):
                    connection.request(method, base + path, None, headers)
                    answer = connection.getresponse()
                    body = answer.read(MOST_BYTES + 1)
                    # What was cut off is shorter than was said, which the reader of a bounded part does not mind.
                    if answer.length and len(body) <= MOST_BYTES:
                        raise http.client.IncompleteRead(body)
        except UnicodeError:
            # By the codec for host names, such as of one with an empty part.
            raise ConnectRefused(
                f"Connect cluster {cluster.name}: {cluster.url} has no valid host name: look at the url of spec.connect"
            ) from None
        except _HUNG_UP as error:
            raise ConnectUnavailable(
                f"Connect cluster {cluster.name} does not answer at {cluster.url}: {type(error).__name__}"
            ) from None
        except ssl.SSLError as error:
            why = error.reason.replace("_", " ").lower() if error.reason else "TLS failed"
            raise ConnectRefused(
                f"Connect cluster {cluster.name}: no trusted TLS connection to {cluster.url}: {why}"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise ConnectUnavailable(
                f"Connect cluster {cluster.name} does not answer at {cluster.url}: {why}"
            ) from None
        if len(body) > MOST_BYTES:
            raise _unreadable(cluster)
        return _Answer(answer.status, body)

    def _connection(self, cluster: ConnectCluster) -> http.client.HTTPConnection:
        parts = urlsplit(cluster.url)
        host = parts.hostname or ""
        # Without a port the last part of an IPv6 address would be taken for one.
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port or http.client.HTTP_PORT, timeout=self._timeout_s)
        port, context = parts.port or http.client.HTTPS_PORT, _tls(cluster)
        return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)

    @contextlib.contextmanager
    def _cut_off_in_time(self, connected: socket.socket) -> Iterator[None]:
        timer = threading.Timer(self._whole_s, _cut, [connected])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _cut(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed by now
        # Not by a method of TLS, after which whoever reads would go on in the clear.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _path(name: str, of_it: str = "") -> str:
    # A name that is a path of its own would ask for something else.
    if name in ("", ".", ".."):
        raise ValueError(f"{name!r} is no connector's name")
    return f"/connectors/{quote(name, safe='')}" + (f"/{of_it}" if of_it else "")


def _tls(cluster: ConnectCluster) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(cluster.ca_file) if cluster.ca_file is not None else None)
    except ssl.SSLError:
        raise
    except OSError:
        raise _replaced(cluster) from None


def _replaced(cluster: ConnectCluster) -> ConnectUnavailable:
    """Its Secrets change, and with them the files that they are in."""
    return ConnectUnavailable(f"the Secrets of Connect cluster {cluster.name} are being replaced")


def _login(cluster: ConnectCluster) -> dict[str, str]:
    if cluster.password_file is None:
        return {}
    try:
        told = cluster.password_file.read_text()
    except OSError:
        raise _replaced(cluster) from None
    # An editor's line break at the end is no part of it.
    password = told.strip("\r\n")
    login = base64.b64encode(f"{cluster.username}:{password}".encode()).decode()
    return {"Authorization": f"Basic {login}"}


def _unexpected(cluster: ConnectCluster, code: int) -> ConnectUnavailable | ConnectRefused:
    where = f"Connect cluster {cluster.name} at {cluster.url}"
    if code in _TRY_AGAIN or code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ConnectUnavailable(f"{where} can't answer now (HTTP status {code})")
    if code == HTTPStatus.NOT_FOUND:
        return ConnectUnavailable(f"{where} answers 404, but not as a worker that has started does: look at the url")
    if code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        advice = "look at authentication of spec.connect in the KafkaConnection, and at what that user may do"
        return ConnectRefused(f"{where} refuses Tidegate (HTTP status {code}): {advice}")
    return ConnectRefused(f"{where} answers with HTTP status {code}: look at the url of spec.connect")


def _unreadable(cluster: ConnectCluster) -> ConnectRefused:
    return ConnectRefused(
        f"what answers at {cluster.url} for Connect cluster {cluster.name} is not a Connect worker: look at the url of "
        "spec.connect"
    )

"""One :class:`Connection` as the settings of the two client libraries; the only place where secrets are read."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any, Final, TypeVar, assert_never

from kafka.net.sasl.oauth import AbstractTokenProvider

from tidegate.kafka.connection import Authentication, AuthenticationType, Connection

T = TypeVar("T")

_MECHANISMS: Final = {
    AuthenticationType.SCRAM_SHA_256: "SCRAM-SHA-256",
    AuthenticationType.SCRAM_SHA_512: "SCRAM-SHA-512",
    AuthenticationType.PLAIN: "PLAIN",
    AuthenticationType.OAUTH: "OAUTHBEARER",
}


class BadConnection(ValueError):
    """The connection's settings cannot be used: the message names the field and what is missing."""


def _required(value: T | None, field: str, auth: Authentication) -> T:
    if value is None:
        raise BadConnection(f"authentication.type {auth.type}: {field} is missing")
    return value


def _secret(path: Path | None, field: str, auth: Authentication) -> str:
    file = _required(path, field, auth)
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise BadConnection(f"authentication.type {auth.type}: cannot read {field} {file}: {error.strerror}") from error


def _protocol(connection: Connection) -> str:
    encrypted = "SSL" if connection.tls else "PLAINTEXT"
    return f"SASL_{encrypted}" if connection.authentication.type in _MECHANISMS else encrypted


def socket_timeout_ms(connection: Connection) -> int:
    """How long a request may take. Raises ``BadConnection``; librdkafka takes the number before any other text."""
    text = connection.properties.get("socket.timeout.ms", "15000")
    if not text.isdecimal():
        raise BadConnection(f"the connection's settings are refused: socket.timeout.ms: {text!r} is no number")
    return int(text)


def librdkafka_config(connection: Connection, **overrides: Any) -> dict[str, Any]:
    """Settings for confluent_kafka. ``overrides`` win, with dots written as given."""
    auth = connection.authentication
    config: dict[str, Any] = {
        "client.id": "tidegate",
        "socket.timeout.ms": 15000,
        "log_level": 3,
        **connection.properties,
        "bootstrap.servers": connection.bootstrap_servers,
        "security.protocol": _protocol(connection),
    }
    if connection.tls and connection.ca_file is not None:
        config["ssl.ca.location"] = str(connection.ca_file)
    match auth.type:
        case AuthenticationType.NONE:
            pass
        case AuthenticationType.SCRAM_SHA_256 | AuthenticationType.SCRAM_SHA_512 | AuthenticationType.PLAIN:
            config["sasl.mechanism"] = _MECHANISMS[auth.type]
            config["sasl.username"] = _required(auth.username, "username", auth)
            config["sasl.password"] = _secret(auth.password_file, "password file", auth)
        case AuthenticationType.TLS:
            config["ssl.certificate.location"] = str(_required(auth.certificate_file, "certificate file", auth))
            config["ssl.key.location"] = str(_required(auth.key_file, "key file", auth))
        case AuthenticationType.OAUTH:
            config["sasl.mechanism"] = _MECHANISMS[auth.type]
            config["sasl.oauthbearer.method"] = "oidc"
            config["sasl.oauthbearer.token.endpoint.url"] = _required(auth.token_endpoint_uri, "tokenEndpointUri", auth)
            config["sasl.oauthbearer.client.id"] = _required(auth.client_id, "clientId", auth)
            config["sasl.oauthbearer.client.secret"] = _secret(auth.client_secret_file, "client secret file", auth)
            if auth.scope is not None:
                config["sasl.oauthbearer.scope"] = auth.scope
        case _:
            assert_never(auth.type)
    return config | overrides


def kafka_python_config(connection: Connection) -> dict[str, Any]:
    """Settings for kafka-python, which sends all requests but those that read or write records."""
    auth = connection.authentication
    properties = connection.properties
    config: dict[str, Any] = {
        "bootstrap_servers": connection.bootstrap_servers.split(","),
        "client_id": properties.get("client.id", "tidegate"),
        "request_timeout_ms": socket_timeout_ms(connection),
        "bootstrap_timeout_ms": min(10_000, socket_timeout_ms(connection)),
        "reconnect_backoff_max_ms": 1000,
        "max_in_flight_requests_per_connection": 1000,
        "security_protocol": _protocol(connection),
    }
    if connection.tls:
        config["ssl_check_hostname"] = properties.get("ssl.endpoint.identification.algorithm", "https") != "none"
        if connection.ca_file is not None:
            config["ssl_cafile"] = str(connection.ca_file)
    match auth.type:
        case AuthenticationType.NONE:
            pass
        case AuthenticationType.SCRAM_SHA_256 | AuthenticationType.SCRAM_SHA_512 | AuthenticationType.PLAIN:
            config["sasl_mechanism"] = _MECHANISMS[auth.type]
            config["sasl_plain_username"] = _required(auth.username, "username", auth)
            config["sasl_plain_password"] = _secret(auth.password_file, "password file", auth)
        case AuthenticationType.TLS:
            config["ssl_certfile"] = str(_required(auth.certificate_file, "certificate file", auth))
            config["ssl_keyfile"] = str(_required(auth.key_file, "key file", auth))
        case AuthenticationType.OAUTH:
            config["sasl_mechanism"] = _MECHANISMS[auth.type]
            config["sasl_oauth_token_provider"] = ClientCredentials(auth)
        case _:
            assert_never(auth.type)
    return config


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The client secret is for the endpoint that was named, and for nobody to whom that one points."""

    def redirect_request(self, *_: Any) -> None:
        return None


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """OAuth 2.0 client credentials grant (RFC 6749 section 4.4), a token kept until shortly before it expires."""

    _MARGIN_S = 30.0
    _TIMEOUT_S = 10.0
    _LONGEST_ANSWER = 1 << 20

    def __init__(self, auth: Authentication) -> None:
        self._uri = _required(auth.token_endpoint_uri, "tokenEndpointUri", auth)
        if not self._uri.startswith("https://") and not self._uri.startswith("http://"):
            raise BadConnection(f"authentication.tokenEndpointUri: {self._uri!r} is not an http(s) URL")
        client = _required(auth.client_id, "clientId", auth)
        secret = _secret(auth.client_secret_file, "client secret file", auth)
        self._basic = b64encode(f"{urllib.parse.quote(client)}:{urllib.parse.quote(secret)}".encode()).decode()
        self._scope = auth.scope
        self._token = ""
        self._expires = 0.0

    def token(self) -> str:
        if time.monotonic() >= self._expires:
            form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
            request = urllib.request.Request(  # noqa: S310 - the scheme was checked above
                self._uri,
                data=urllib.parse.urlencode(form).encode(),
                headers={"Authorization": f"Basic {self._basic}", "Accept": "application/json"},
            )
            try:
                with urllib.request.build_opener(_NoRedirect).open(request, timeout=self._TIMEOUT_S) as answer:
                    body = json.loads(answer.read(self._LONGEST_ANSWER))
                self._token = str(body["access_token"])
                lifetime = float(body.get("expires_in", 300))
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
                # Whatever it answered. Never its body, which may hold a token.
                raise BadConnection(
                    f"authentication.type oauth: no token from {self._uri}: {type(error).__name__}"
                ) from None
            self._expires = time.monotonic() + max(1.0, lifetime - self._MARGIN_S)
        return self._token

    def extensions(self) -> dict[str, str]:
        return {}

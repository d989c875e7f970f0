"""How a consumer of a pure Python client reaches its brokers, said in librdkafka's terms. Pure, but for what an
``ssl.SSLContext`` was given.

aiokafka and kafka-python name their settings alike; where one of them has a setting the other lacks, it is absent.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate_agent.adapters.certificates import client_certificate

TOKEN_LIFETIME_S: Final = 300.0
"""How long an OAuth token is used whose end it does not tell itself; it is asked for again before (RFC 7519, "exp")."""

_LAST_S: Final = 2.0**40
"""An end beyond this is no time, and librdkafka takes none: such a token does not tell its end."""

_NAMES: Final = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_ciphers": "ssl.cipher.suites",
}
_KERBEROS: Final = ("sasl_kerberos_service_name",)
_PASSWORD: Final = ("sasl_plain_username", "sasl_plain_password")


class Untranslatable(ValueError):
    """The agent cannot reach the brokers in the application's way; the message says what is missing."""


@dataclass(frozen=True)
class OAuth:
    """librdkafka's ``oauth_cb``; equal to that of another consumer with the same provider, which shares a link."""

    token: Callable[[], str]
    now: Callable[[], float]

    def __call__(self, _config: str) -> tuple[str, float]:
        value = self.token()
        return value, token_end(value, self.now())


def librdkafka_settings(
    arguments: Mapping[str, Any], token: Callable[[], str] | None = None, *, now: Callable[[], float]
) -> dict[str, Any]:
    """The connection of a consumer that was made with these keyword arguments.

    ``token`` gives an OAuth token, and may block; ``now``: epoch seconds, for the end of a token. Raises
    ``Untranslatable``.
    """
    protocol = str(arguments.get("security_protocol") or "PLAINTEXT").upper()
    settings: dict[str, Any] = {"bootstrap.servers": _servers(arguments.get("bootstrap_servers") or "localhost")}
    if arguments.get("client_id"):
        settings["client.id"] = str(arguments["client_id"])
    if arguments.get("proxy_url") or arguments.get("socks5_proxy"):
        raise Untranslatable("the brokers are reached through a proxy, which librdkafka cannot")
    if arguments.get("kafka_client") is not None:
        raise Untranslatable("kafka_client replaces the client's connections")
    names = ["security_protocol"]
    if protocol.startswith("SASL"):
        names += ["sasl_mechanism", *_sasl(arguments, token, now, settings)]
    if protocol.endswith("SSL"):
        context = arguments.get("ssl_context")
        if context is not None:
            settings |= _of_context(context)
        else:
            names += [name for name in _NAMES if name.startswith("ssl_")]
            if arguments.get("ssl_check_hostname") is False:
                settings["ssl.endpoint.identification.algorithm"] = "none"
    for name in names:
        if arguments.get(name) is not None:
            settings[_NAMES[name]] = str(arguments[name])
    settings["security.protocol"] = protocol
    return settings


def _servers(value: Any) -> str:
    servers = [value] if isinstance(value, str) else list(value)
    found = [part.strip() for server in servers for part in str(server).split(",") if part.strip()]
    # Without a port both clients and librdkafka take 9092.
    return ",".join(found)


def _sasl(
    arguments: Mapping[str, Any], token: Callable[[], str] | None, now: Callable[[], float], settings: dict[str, Any]
) -> tuple[str, ...]:
    """The arguments that belong to the mechanism; a token provider is put into the settings."""
    mechanism = str(arguments.get("sasl_mechanism") or "PLAIN").upper()
    settings["sasl.mechanism"] = mechanism
    if mechanism == "GSSAPI":
        return _KERBEROS
    if mechanism != "OAUTHBEARER":
        return _PASSWORD
    if token is None:
        raise Untranslatable("sasl_mechanism is OAUTHBEARER, but there is no sasl_oauth_token_provider")
    settings["oauth_cb"] = OAuth(token, now)
    return ()


def token_end(token: str, now: float) -> float:
    """Until when a token may be used (epoch seconds): its own word, if it is a JWT."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        end = float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError, binascii.Error):
        return now + TOKEN_LIFETIME_S
    return end if now < end < _LAST_S else now + TOKEN_LIFETIME_S


def _of_context(context: ssl.SSLContext) -> dict[str, Any]:
    """What a context tells, whom it trusts, and the client certificate that was loaded into it."""
    settings: dict[str, Any] = {}
    authorities = context.get_ca_certs(binary_form=True)
    if authorities:
        settings["ssl.ca.pem"] = "".join(ssl.DER_cert_to_PEM_cert(der) for der in authorities)
    if context.verify_mode is ssl.CERT_NONE:
        settings["enable.ssl.certificate.verification"] = "false"
    if not context.check_hostname:
        settings["ssl.endpoint.identification.algorithm"] = "none"
    certificate = client_certificate(context)
    if certificate is not None:
        settings["ssl.certificate.location"] = certificate.certificate
        settings["ssl.key.location"] = certificate.key
        if certificate.password is not None:
            settings["ssl.key.password"] = certificate.password
    return settings

"""A :class:`Connection` from the settings that confluent_kafka's clients take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidegate.admin.secret_files import SecretFiles
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka_client.settings import BadConnection

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = {
    "SCRAM-SHA-256": AuthenticationType.SCRAM_SHA_256,
    "SCRAM-SHA-512": AuthenticationType.SCRAM_SHA_512,
    "PLAIN": AuthenticationType.PLAIN,
    "OAUTHBEARER": AuthenticationType.OAUTH,
}
_GIVEN_BY_VALUE: Final = {
    "ssl.ca.pem": "ssl.ca.location",
    "ssl.certificate.pem": "ssl.certificate.location",
    "ssl.key.pem": "ssl.key.location",
}
_FILES: Final = tuple(_GIVEN_BY_VALUE.values())
_OAUTH: Final = "sasl.oauthbearer."
_SAFE_PREFIXES: Final = ("ssl.endpoint.identification.algorithm", "ssl.cipher.suites", "sasl.oauthbearer.method")


def connection_from(settings: Mapping[str, Any], secrets: SecretFiles) -> Connection:
    """The connection; its secrets are written to ``secrets``. Raises ``BadConnection``, which never quotes a secret."""
    left = {name: value for name, value in settings.items() if value is not None}
    bootstrap = str(left.pop("bootstrap.servers", left.pop("metadata.broker.list", "")))
    if not bootstrap:
        raise BadConnection("bootstrap.servers is missing")
    protocol = str(left.pop("security.protocol", "plaintext")).upper()
    if protocol not in PROTOCOLS:
        raise BadConnection(f"security.protocol: {protocol!r} is none of {', '.join(PROTOCOLS)}")
    for name, location in _GIVEN_BY_VALUE.items():
        if name in left:
            left[location] = secrets.write(name, str(left.pop(name)))
    files = {name: Path(left.pop(name)) for name in _FILES if name in left}
    authentication = _authentication(protocol, left, files, secrets)
    for name, value in left.items():
        if callable(value):
            raise BadConnection(f"{name}: functions are not taken here")
        if name.startswith(("sasl.", "ssl.")) and not name.startswith(_SAFE_PREFIXES):
            raise BadConnection(f"{name}: this setting is not supported")
    return Connection(
        bootstrap_servers=bootstrap,
        tls=protocol.endswith("SSL"),
        ca_file=files.get("ssl.ca.location"),
        authentication=authentication,
        properties={name: _text(value) for name, value in left.items() if not name.startswith("sasl.")},
    )


def _authentication(
    protocol: str, left: dict[str, Any], files: Mapping[str, Path], secrets: SecretFiles
) -> Authentication:
    certificate, key = files.get("ssl.certificate.location"), files.get("ssl.key.location")
    if not protocol.startswith("SASL_"):
        if certificate is None and key is None:
            return Authentication()
        return Authentication(AuthenticationType.TLS, certificate_file=certificate, key_file=key)
    if certificate is not None or key is not None:
        raise BadConnection("ssl.certificate.location: a client certificate together with SASL is not supported")
    name = str(left.pop("sasl.mechanism", left.pop("sasl.mechanisms", "")))
    mechanism = MECHANISMS.get(name.upper())
    if mechanism is None:
        raise BadConnection(f"sasl.mechanism: {name!r} is none of {', '.join(MECHANISMS)}")
    if mechanism is not AuthenticationType.OAUTH:
        password = left.pop("sasl.password", None)
        return Authentication(
            mechanism,
            username=left.pop("sasl.username", None),
            password_file=None if password is None else secrets.write("password", str(password)),
        )
    secret = left.pop(f"{_OAUTH}client.secret", None)
    return Authentication(
        mechanism,
        token_endpoint_uri=left.pop(f"{_OAUTH}token.endpoint.url", None),
        client_id=left.pop(f"{_OAUTH}client.id", None),
        client_secret_file=None if secret is None else secrets.write("client-secret", str(secret)),
        scope=left.pop(f"{_OAUTH}scope", None),
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

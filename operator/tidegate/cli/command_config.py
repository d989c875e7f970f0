"""``--command-config``: the properties that Java clients take, as a :class:`Connection`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidegate.admin.secret_files import SecretFiles
from tidegate.admin.settings import connection_from
from tidegate.cli.errors import UsageError
from tidegate.cli.java_text import parse_properties
from tidegate.kafka.connection import Connection
from tidegate.kafka_client.settings import BadConnection

_SAME: Final = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "client.id": "client.id",
    "request.timeout.ms": "socket.timeout.ms",
    "ssl.cipher.suites": "ssl.cipher.suites",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
}
"""Java's name, and what confluent_kafka calls the same thing."""

_WITHOUT_MEANING: Final = frozenset(
    {
        "bootstrap.servers",  # --bootstrap-server counts, as in Kafka's tools
        "sasl.login.callback.handler.class",
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.truststore.password",  # a PEM trust store has none
        "default.api.timeout.ms",
        "retries",
        "retry.backoff.ms",
        "client.dns.lookup",
    }
)
_LOGIN: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL)
_PEM_HINT: Final = (
    "only PEM stores can be used here; convert it (keytool -importkeystore -deststoretype pkcs12, then "
    "openssl pkcs12) and set {0}.type=PEM"
)


@dataclass(frozen=True, slots=True)
class CommandConfig:
    """``ignored``: names of properties that mean nothing here, for a note to the user."""

    connection: Connection
    ignored: tuple[str, ...] = ()


def read_command_config(file: Path | None, bootstrap_servers: str, secrets: SecretFiles) -> CommandConfig:
    """Raises ``UsageError``, which names properties and never quotes a secret."""
    properties: Mapping[str, str] = {}
    if file is not None:
        try:
            properties = parse_properties(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"--command-config {file}: {error.strerror}") from error
        except ValueError as error:
            raise UsageError(f"--command-config {file}: {error}") from error
    try:
        return command_config(properties, bootstrap_servers, secrets)
    except BadConnection as error:
        raise UsageError(f"--command-config {file}: {error}" if file is not None else str(error)) from error


def command_config(properties: Mapping[str, str], bootstrap_servers: str, secrets: SecretFiles) -> CommandConfig:
    """Properties about security are understood or refused, never passed over. Raises ``BadConnection``."""
    left = {name: value.strip() for name, value in properties.items() if name not in _WITHOUT_MEANING}
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
    settings |= {theirs: left.pop(ours) for ours, theirs in _SAME.items() if ours in left}
    protocol = str(settings.get("security.protocol", "PLAINTEXT")).upper()
    login = _login(left.pop("sasl.jaas.config", ""))
    if protocol.startswith("SASL_"):
        settings |= _sasl(login, str(settings.get("sasl.mechanism", "GSSAPI")))
    else:
        settings = {name: value for name, value in settings.items() if not name.startswith("sasl.")}
    tls = _tls(left, secrets)
    if protocol.endswith("SSL"):
        settings |= tls
    if any(name.startswith("config.providers") for name in left):
        raise BadConnection("config.providers: config providers can't be used here; write the values into the file")
    refused = sorted(name for name in left if name.startswith(("ssl.", "sasl.", "security.")))
    if refused:
        raise BadConnection(
            f"these properties can't be used here: {', '.join(refused)}; remove those that the connection does not need"
        )
    return CommandConfig(connection_from(settings, secrets), tuple(sorted(left)))


def with_kafkas_name(message: str) -> str:
    """What a client library says of one of its settings, with the name that it has in the file."""
    named = next((ours for ours, theirs in _SAME.items() if ours != theirs and theirs in message), None)
    return message if named is None else f"{message} ({named} in Kafka's terms)"


def _login(text: str) -> Mapping[str, str]:
    """The options of a JAAS entry: ``<module> required name="value" …;``."""
    return {
        m[1]: re.sub(r"\\(.)", r"\1", next(g for g in m.groups()[1:] if g is not None)) for m in _LOGIN.finditer(text)
    }


def _sasl(login: Mapping[str, str], mechanism: str) -> dict[str, str]:
    if mechanism.upper() == "OAUTHBEARER":
        names = {
            "clientId": "sasl.oauthbearer.client.id",
            "clientSecret": "sasl.oauthbearer.client.secret",
            "scope": "sasl.oauthbearer.scope",
        }
    else:
        names = {"username": "sasl.username", "password": "sasl.password"}
        missing = [name for name in names if name not in login]
        if missing and mechanism.upper() != "GSSAPI":
            raise BadConnection(f"sasl.jaas.config: it lacks {' and '.join(missing)}")
    return {theirs: login[ours] for ours, theirs in names.items() if ours in login}


def _tls(left: dict[str, str], secrets: SecretFiles) -> dict[str, str]:
    found: dict[str, str] = {}
    endpoint = left.pop("ssl.endpoint.identification.algorithm", None)
    if endpoint is not None:
        found["ssl.endpoint.identification.algorithm"] = endpoint.lower() or "none"
    for store in ("ssl.truststore", "ssl.keystore"):
        kind = left.pop(f"{store}.type", "JKS").upper()
        if f"{store}.location" in left and kind != "PEM":
            raise BadConnection(f"{store}.location is of type {kind}: {_PEM_HINT.format(store)}")
    if "ssl.key.password" in left:
        raise BadConnection(
            "ssl.key.password: encrypted keys can't be used here; decrypt the key with openssl pkcs8, and "
            "remove this property"
        )
    left.pop("ssl.keystore.password", None)  # means nothing for PEM without an encrypted key
    for name, target in (
        ("ssl.truststore.certificates", "ssl.ca.location"),
        ("ssl.keystore.certificate.chain", "ssl.certificate.location"),
        ("ssl.keystore.key", "ssl.key.location"),
    ):
        if name in left:
            found[target] = str(secrets.write(f"{name}.pem", left.pop(name)))
    if "ssl.truststore.location" in left:
        found["ssl.ca.location"] = left.pop("ssl.truststore.location")
    if "ssl.keystore.location" in left:
        # One PEM file with the key and its certificates.
        found["ssl.certificate.location"] = found["ssl.key.location"] = left.pop("ssl.keystore.location")
    return found

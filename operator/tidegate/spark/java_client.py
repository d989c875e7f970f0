"""A :class:`Connection` as settings of Kafka's Java client, which is what Spark reads records with.

No secret is among them: where one belongs stands a reference to its file (KIP-297), which the client itself opens, in
the driver and in each executor. So none shows in a plan, in a log, or in Spark's configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar, assert_never

from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka_client.settings import BadConnection

T = TypeVar("T")

_PROVIDER: Final = "file"
_PROVIDER_CLASS: Final = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
_MODULES: Final = "org.apache.kafka.common.security"
_OAUTH_HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_SCRAM: Final = {AuthenticationType.SCRAM_SHA_256: "SCRAM-SHA-256", AuthenticationType.SCRAM_SHA_512: "SCRAM-SHA-512"}

_SAME_NAME: Final = frozenset(
    {
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
    }
)
"""Client settings that both librdkafka and the Java client have, under one name and with one meaning. The others have
no counterpart (sockets, address families) or one of another meaning (``request.timeout.ms``)."""


def java_properties(connection: Connection) -> dict[str, str]:
    """Settings of Kafka's Java client, without secrets.

    Looks into the files with secrets for what that client can't be given from a file. Raises ``BadConnection``, which
    names the file and says what to do.
    """
    auth = connection.authentication
    properties = connection.properties
    java = {key: value for key, value in properties.items() if key in _SAME_NAME}
    java["bootstrap.servers"] = connection.bootstrap_servers
    encrypted = "SSL" if connection.tls else "PLAINTEXT"
    java["security.protocol"] = encrypted
    if "socket.timeout.ms" in properties:
        java["request.timeout.ms"] = properties["socket.timeout.ms"]
    if connection.tls:
        if properties.get("ssl.endpoint.identification.algorithm") == "none":
            java["ssl.endpoint.identification.algorithm"] = ""
        if connection.ca_file is not None:
            java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(connection.ca_file)}
    match auth.type:
        case AuthenticationType.NONE:
            return java
        case AuthenticationType.SCRAM_SHA_256 | AuthenticationType.SCRAM_SHA_512:
            mechanism, module = _SCRAM[auth.type], f"{_MODULES}.scram.ScramLoginModule"
            options = _user_and_password(auth)
        case AuthenticationType.PLAIN:
            mechanism, module = "PLAIN", f"{_MODULES}.plain.PlainLoginModule"
            options = _user_and_password(auth)
        case AuthenticationType.OAUTH:
            mechanism, module = "OAUTHBEARER", f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
            java["sasl.oauthbearer.token.endpoint.url"] = _required(auth.token_endpoint_uri, "tokenEndpointUri", auth)
            java["sasl.login.callback.handler.class"] = _OAUTH_HANDLER
            options = _option("clientId", _required(auth.client_id, "clientId", auth))
            if auth.scope is not None:
                options += _option("scope", auth.scope)
            options += _secret_option("clientSecret", auth.client_secret_file, "client secret file", auth)
        case AuthenticationType.TLS:
            certificate = _required(auth.certificate_file, "certificate file", auth)
            key = _required(auth.key_file, "key file", auth)
            _check_key(key, auth)
            return java | {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": _reference(certificate),
                "ssl.keystore.key": _reference(key),
                **_providers(certificate, key),
            }
        case _:
            assert_never(auth.type)
    secret = auth.client_secret_file if auth.type is AuthenticationType.OAUTH else auth.password_file
    return java | {
        "security.protocol": f"SASL_{encrypted}",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} required{options}",
        **_providers(_required(secret, "secret file", auth)),
    }


def _providers(*files: Path) -> dict[str, str]:
    """Kafka's provider of values by file, allowed to open these files' folders and nothing else (KIP-993)."""
    folders = sorted({str(file.parent) for file in files})
    return {
        "config.providers": _PROVIDER,
        f"config.providers.{_PROVIDER}.class": _PROVIDER_CLASS,
        f"config.providers.{_PROVIDER}.param.allowed.paths": ",".join(folders),
    }


def _reference(file: Path) -> str:
    if not file.is_absolute() or set(str(file)) & set(":{},"):
        raise BadConnection(f"{file}: Kafka's Java client takes secrets of absolute paths without ':', ',', '{{', '}}'")
    return f"${{{_PROVIDER}:{file.parent}:{file.name}}}"


def _user_and_password(auth: Authentication) -> str:
    user = _option("username", _required(auth.username, "username", auth))
    return user + _secret_option("password", auth.password_file, "password file", auth)


def _option(name: str, value: str) -> str:
    """One option of a JAAS login module, as ``java.io.StreamTokenizer`` reads strings."""
    if any(ord(character) < 32 for character in value) or "${" in value:
        raise BadConnection(f"authentication: {name} can't be given to Kafka's Java client: it has control characters")
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f' {name}="{quoted}"'


def _secret_option(name: str, path: Path | None, field: str, auth: Authentication) -> str:
    """The last option of a login module, its value in a file; ends the configuration.

    Files often end in a newline, which to JAAS ends a string. What follows is right in both cases: without one, it is
    the string's end and an option that nobody reads; with one, it is a string, and the option's name and value.
    """
    file = _required(path, field, auth)
    text = _read(file, field, auth).rstrip("\r\n")
    if set(text) & set('"\\') or any(ord(character) < 32 for character in text):
        raise BadConnection(
            f"authentication.type {auth.type}: the {field} {file} holds a quote, a backslash or a line break, which "
            "Kafka's Java client can't be given from a file: records can't be read until it is another one"
        )
    return f' {name}="{_reference(file)}" end="=end;//";'


def _check_key(file: Path, auth: Authentication) -> None:
    text = _read(file, "key file", auth)
    if "-----BEGIN PRIVATE KEY-----" not in text:
        raise BadConnection(
            f"authentication.type {auth.type}: the key file {file} is not an unencrypted PKCS #8 key ('BEGIN PRIVATE "
            "KEY'), the only form that Kafka's Java client reads: convert it by openssl pkcs8 -topk8 -nocrypt"
        )


def _read(file: Path, field: str, auth: Authentication) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadConnection(f"authentication.type {auth.type}: cannot read {field} {file}: {error.strerror}") from error


def _required(value: T | None, field: str, auth: Authentication) -> T:
    if value is None:
        raise BadConnection(f"authentication.type {auth.type}: {field} is missing")
    return value

"""The properties of Java clients as a connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.admin.secret_files import SecretFiles
from tidegate.admin.settings import connection_from
from tidegate.cli.command_config import CommandConfig, command_config, read_command_config
from tidegate.cli.errors import UsageError
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka_client.settings import BadConnection

PASSWORD = 'swordfish"with\\quote'
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="tidegate" password="swordfish\\"with\\\\quote";'
)


@pytest.fixture
def secrets() -> Iterator[SecretFiles]:
    files = SecretFiles()
    yield files
    files.close()


def _read(properties: dict[str, str], secrets: SecretFiles) -> CommandConfig:
    return command_config(properties, "kafka:9092", secrets)


def test_without_properties_it_is_plaintext(secrets: SecretFiles) -> None:
    assert _read({}, secrets).connection == Connection("kafka:9092")


def test_a_scram_login_is_understood_and_its_password_kept_in_a_file_of_ours(secrets: SecretFiles) -> None:
    connection = _read(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/etc/ca.pem",
            "client.id": "by-hand",
            "request.timeout.ms": "4000",
        },
        secrets,
    ).connection

    assert (connection.tls, connection.ca_file) == (True, Path("/etc/ca.pem"))
    auth = connection.authentication
    assert (auth.type, auth.username) == (AuthenticationType.SCRAM_SHA_512, "tidegate")
    assert auth.password_file is not None
    assert auth.password_file.read_text() == PASSWORD
    assert auth.password_file.stat().st_mode & 0o777 == 0o600
    assert auth.password_file.parent.stat().st_mode & 0o777 == 0o700
    assert connection.properties == {"client.id": "by-hand", "socket.timeout.ms": "4000"}
    assert "swordfish" not in repr(connection)

    secrets.close()
    assert not auth.password_file.parent.exists()


def test_a_login_with_single_quotes_or_none_is_understood(secrets: SecretFiles) -> None:
    jaas = "PlainLoginModule required username=kafka password='pass word';"

    connection = _read(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}, secrets
    ).connection

    assert connection.authentication.username == "kafka"
    assert connection.authentication.password_file is not None
    assert connection.authentication.password_file.read_text() == "pass word"
    assert not connection.tls


def test_certificates_given_by_value_are_written_to_files(secrets: SecretFiles) -> None:
    connection = _read(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "-- CA --",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": "-- CHAIN --",
            "ssl.keystore.key": "-- KEY --",
            "ssl.endpoint.identification.algorithm": "",
        },
        secrets,
    ).connection

    auth = connection.authentication
    assert connection.ca_file is not None
    assert auth.certificate_file is not None
    assert auth.key_file is not None
    assert [f.read_text() for f in (connection.ca_file, auth.certificate_file, auth.key_file)] == [
        "-- CA --",
        "-- CHAIN --",
        "-- KEY --",
    ]
    assert auth.type is AuthenticationType.TLS
    assert connection.properties == {"ssl.endpoint.identification.algorithm": "none"}


def test_one_pem_file_may_hold_key_and_certificate(secrets: SecretFiles) -> None:
    properties = {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": "/etc/both.pem"}

    auth = _read(properties, secrets).connection.authentication

    assert auth == Authentication(
        AuthenticationType.TLS, certificate_file=Path("/etc/both.pem"), key_file=Path("/etc/both.pem")
    )


@pytest.mark.parametrize(
    "properties",
    [
        {
            "sasl.jaas.config": 'OAuthBearerLoginModule required clientId="me" clientSecret="hush" scope="kafka";',
            "sasl.login.callback.handler.class": "OAuthBearerLoginCallbackHandler",
        },
        {
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "hush",
            "sasl.oauthbearer.scope": "kafka",
        },
    ],
)
def test_both_forms_of_an_oauth_login_are_understood(properties: dict[str, str], secrets: SecretFiles) -> None:
    auth = _read(
        properties
        | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        },
        secrets,
    ).connection.authentication

    assert (auth.type, auth.client_id, auth.scope) == (AuthenticationType.OAUTH, "me", "kafka")
    assert auth.token_endpoint_uri == "https://idp/token"
    assert auth.client_secret_file is not None
    assert auth.client_secret_file.read_text() == "hush"


def test_what_means_nothing_here_is_named(secrets: SecretFiles) -> None:
    config = _read({"max.poll.records": "5", "metric.reporters": "x", "retries": "3"}, secrets)

    assert config.ignored == ("max.poll.records", "metric.reporters")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: 'TLS' is none of"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: '' is none of"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "'GSSAPI' is none of"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "lacks username and password"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/etc/trust.jks"}, "type JKS: only PEM stores"),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12"}, "ssl.keystore.location is of type PKCS12"),
        ({"security.protocol": "SSL", "ssl.key.password": "hush"}, "ssl.key.password: encrypted keys"),
        ({"security.protocol": "SSL", "ssl.engine.factory.class": "x"}, "can't be used here: ssl.engine.factory.class"),
        ({"security.providers": "x"}, "can't be used here: security.providers"),
        ({"config.providers": "file"}, "config.providers"),
    ],
)
def test_security_that_is_not_understood_is_refused(
    properties: dict[str, str], said: str, secrets: SecretFiles
) -> None:
    with pytest.raises(BadConnection, match=said) as error:
        _read(properties, secrets)

    assert "hush" not in str(error.value)


def test_a_file_that_cannot_be_read_is_bad_usage(secrets: SecretFiles, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_command_config(tmp_path / "none", "kafka:9092", secrets)


def test_the_settings_of_a_librdkafka_client_are_taken(secrets: SecretFiles) -> None:
    connection = connection_from(
        {
            "bootstrap.servers": "kafka:9092",
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "me",
            "sasl.password": "hush",
            "ssl.ca.pem": "-- CA --",
            "socket.keepalive.enable": True,
        },
        secrets,
    )

    assert connection.tls
    assert connection.authentication.type is AuthenticationType.SCRAM_SHA_256
    assert connection.authentication.password_file is not None
    assert connection.authentication.password_file.read_text() == "hush"
    assert connection.ca_file is not None
    assert connection.ca_file.read_text() == "-- CA --"
    assert connection.properties == {"socket.keepalive.enable": "true"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "x", "error_cb": print}, "error_cb: functions"),
        ({"bootstrap.servers": "x", "ssl.keystore.password": "hush"}, "ssl.keystore.password"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, object], said: str, secrets: SecretFiles) -> None:
    with pytest.raises(BadConnection, match=said) as error:
        connection_from(settings, secrets)

    assert "hush" not in str(error.value)

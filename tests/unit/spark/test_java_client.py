"""A connection as settings of Kafka's Java client: complete, and without a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka_client.settings import BadConnection
from tidegate.spark.java_client import java_properties

PASSWORD = "a-secret-4711"


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def scram(password_file: Path | None, username: str = "tidegate") -> Connection:
    auth = Authentication(AuthenticationType.SCRAM_SHA_512, username=username, password_file=password_file)
    return Connection("kafka:9093", tls=True, ca_file=Path("/ca.crt"), authentication=auth)


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_password_is_referred_to_and_never_given(tmp_path: Path, ending: str) -> None:
    properties = java_properties(scram(file(tmp_path, "password", PASSWORD + ending)))

    assert PASSWORD not in str(properties)
    assert f"${{file:{tmp_path}:password}}" in properties["sasl.jaas.config"]
    assert properties["config.providers.file.param.allowed.paths"] == str(tmp_path)
    assert properties["security.protocol"] == "SASL_SSL"
    assert properties["ssl.truststore.location"] == "/ca.crt"


def test_a_user_name_stays_one_string(tmp_path: Path) -> None:
    connection = scram(file(tmp_path, "password", PASSWORD), username='a"; com.evil.Module required x="\\')

    assert '="a\\"; com.evil.Module required x=\\"\\\\"' in java_properties(connection)["sasl.jaas.config"]


@pytest.mark.parametrize("text", ['with"quote', "with\\backslash", "two\nlines"])
def test_a_password_that_the_java_client_would_misread_is_refused_without_being_shown(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(BadConnection, match=r"password file .*/password holds a quote") as refused:
        java_properties(scram(file(tmp_path, "password", text)))

    assert text not in str(refused.value)


def test_a_certificate_comes_from_files_and_an_old_form_of_key_is_refused(tmp_path: Path) -> None:
    def connection(key: str) -> Connection:
        auth = Authentication(
            AuthenticationType.TLS,
            certificate_file=file(tmp_path, "tls.crt", "certificate"),
            key_file=file(tmp_path, "tls.key", key),
        )
        return Connection("kafka:9093", tls=True, authentication=auth)

    properties = java_properties(connection("-----BEGIN PRIVATE KEY-----\nabc"))
    assert properties["ssl.keystore.key"] == f"${{file:{tmp_path}:tls.key}}"
    assert properties["security.protocol"] == "SSL"
    with pytest.raises(BadConnection, match="openssl pkcs8"):
        java_properties(connection("-----BEGIN RSA PRIVATE KEY-----\nabc"))


def test_settings_with_another_meaning_are_not_passed_on() -> None:
    own = {"socket.timeout.ms": "20000", "request.timeout.ms": "5", "broker.address.family": "v4", "client.id": "me"}
    properties = java_properties(Connection("kafka:9092", properties=own))

    assert properties == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "PLAINTEXT",
        "request.timeout.ms": "20000",
        "client.id": "me",
    }


def test_a_missing_secret_names_the_field() -> None:
    with pytest.raises(BadConnection, match="password file is missing"):
        java_properties(scram(None))

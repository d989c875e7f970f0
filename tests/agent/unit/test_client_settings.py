"""How a pure Python client's arguments become librdkafka's settings."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from devstack.certificates import CertificateAuthority
from tidegate_agent.adapters.certificates import client_certificate, note_certificates
from tidegate_agent.adapters.client_settings import TOKEN_LIFETIME_S, Untranslatable, librdkafka_settings, token_end

NOW = 1_000.0


def translated(**arguments: Any) -> dict[str, Any]:
    return librdkafka_settings(arguments, now=lambda: NOW)


def jwt(claims: object) -> str:
    return f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("kafka:9092", "kafka:9092"),
        (["a:1", "b:2"], "a:1,b:2"),
        (["a:1, b:2", "c"], "a:1,b:2,c"),
        (("a:1",), "a:1"),
    ],
)
def test_servers_are_given_as_a_string_or_a_list(servers: object, expected: str) -> None:
    assert translated(bootstrap_servers=servers)["bootstrap.servers"] == expected


def test_without_arguments_the_clients_defaults_hold() -> None:
    assert translated() == {"bootstrap.servers": "localhost", "security.protocol": "PLAINTEXT"}


def test_a_password_is_taken_along() -> None:
    assert translated(
        bootstrap_servers="k:9093",
        client_id="orders",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="me",
        sasl_plain_password="secret",
    ) == {
        "bootstrap.servers": "k:9093",
        "client.id": "orders",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "secret",
    }


def test_sasl_without_a_mechanism_is_plain_as_in_aiokafka() -> None:
    assert translated(security_protocol="SASL_PLAINTEXT", sasl_plain_username="me")["sasl.mechanism"] == "PLAIN"


def test_certificates_in_files_are_taken_along() -> None:
    assert translated(
        security_protocol="SSL", ssl_cafile="ca", ssl_certfile="cert", ssl_keyfile="key", ssl_password="p"
    ) == {
        "bootstrap.servers": "localhost",
        "security.protocol": "SSL",
        "ssl.ca.location": "ca",
        "ssl.certificate.location": "cert",
        "ssl.key.location": "key",
        "ssl.key.password": "p",
    }


def test_a_name_that_is_not_checked_is_not_checked() -> None:
    settings = translated(security_protocol="SSL", ssl_check_hostname=False)
    assert settings["ssl.endpoint.identification.algorithm"] == "none"


def test_settings_of_a_protocol_that_is_not_used_are_left_out() -> None:
    assert translated(ssl_cafile="ca", sasl_mechanism="PLAIN", sasl_plain_password="p") == translated()


def test_of_a_context_those_whom_it_trusts_are_taken_along() -> None:
    context = ssl.create_default_context()
    settings = translated(security_protocol="SSL", ssl_context=context, ssl_cafile="passed over")
    authorities = len(context.get_ca_certs())
    assert settings.get("ssl.ca.pem", "").count("BEGIN CERTIFICATE") == authorities
    assert settings.keys() <= {"bootstrap.servers", "security.protocol", "ssl.ca.pem"}


def test_a_context_that_trusts_everybody_is_obeyed() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    settings = translated(security_protocol="SASL_SSL", ssl_context=context)
    assert settings["enable.ssl.certificate.verification"] == "false"
    assert settings["ssl.endpoint.identification.algorithm"] == "none"


def test_a_token_provider_is_asked_when_librdkafka_asks() -> None:
    arguments = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    settings = librdkafka_settings(arguments, lambda: jwt({"exp": NOW + 60}), now=lambda: NOW)
    assert settings["oauth_cb"]("") == (jwt({"exp": NOW + 60}), NOW + 60)


def test_oauth_without_a_provider_cannot_be_translated() -> None:
    with pytest.raises(Untranslatable, match="sasl_oauth_token_provider"):
        translated(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER")


@pytest.mark.parametrize("name", ["proxy_url", "socks5_proxy", "kafka_client"])
def test_a_way_that_librdkafka_does_not_have_cannot_be_translated(name: str) -> None:
    with pytest.raises(Untranslatable):
        translated(**{name: "socks5://proxy:1080"})


@pytest.mark.parametrize(
    "token", ["opaque", "a.b.c", "a.%%%.c", jwt({}), jwt({"exp": "soon"}), jwt([1]), jwt({"exp": NOW - 1}), ""]
)
def test_a_token_that_does_not_tell_its_end_is_asked_for_again_soon(token: str) -> None:
    assert token_end(token, NOW) == NOW + TOKEN_LIFETIME_S


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", ssl.SSLContext.load_cert_chain)
    note_certificates()
    note_certificates()


@pytest.mark.parametrize("password", [None, "4711", b"4711", lambda: "4711"])
@pytest.mark.usefixtures("noted")
def test_of_a_context_the_client_certificate_is_taken_along(tmp_path: Path, password: Any) -> None:
    made = CertificateAuthority.create(tmp_path).issue("me")
    key = made.key
    if password is not None:
        key = tmp_path / "locked.key"
        lock = ("pkcs8", "-topk8", "-in", str(made.key), "-out", str(key), "-passout", "pass:4711")
        subprocess.run(["openssl", *lock], check=True)
    context = ssl.create_default_context()
    context.load_cert_chain(made.certificate, key, password)
    settings = translated(security_protocol="SSL", ssl_context=context)
    assert settings["ssl.certificate.location"] == str(made.certificate)
    assert settings["ssl.key.location"] == str(key)
    assert settings.get("ssl.key.password") == (None if password is None else "4711")
    assert "4711" not in repr(client_certificate(context))


@pytest.mark.usefixtures("noted")
def test_a_context_into_which_nothing_could_be_loaded_has_no_client_certificate(tmp_path: Path) -> None:
    context = ssl.create_default_context()
    with pytest.raises(OSError, match="No such file"):
        context.load_cert_chain(tmp_path / "none.crt")
    assert "ssl.certificate.location" not in translated(security_protocol="SSL", ssl_context=context)

"""From Secrets to files: what is needed, what is missing, and how it is kept."""

import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tidegate.connection.credentials import (
    UnusableSecret,
    connect_clusters_in,
    connection_in,
    connection_with_mounts,
    digest_of,
    file_contents,
    keys_by_secret,
    keys_for_kafka,
    keys_for_registry,
    registry_by,
    unusable_clusters,
)
from tidegate.connection.files import ConnectionFiles, FilesFailure
from tidegate.kafka.connection import AuthenticationType, Registry
from tidegate.resources.base import parse_spec
from tidegate.resources.connection import KafkaConnectionSpec

PEM = b"-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"


def spec_of(**spec: Any) -> KafkaConnectionSpec:
    return parse_spec(KafkaConnectionSpec, {"spec": {"bootstrapServers": "kafka:9092", **spec}})


TRUSTED = {"trustedCertificates": [{"secretName": "ca", "certificate": "ca.crt"}]}
SCRAM = {"type": "scram-sha-512", "username": "me", "passwordSecret": {"secretName": "login", "password": "pw"}}
MTLS = {"type": "tls", "certificateAndKey": {"secretName": "us", "certificate": "tls.crt", "key": "tls.key"}}
OAUTH = {
    "type": "oauth",
    "tokenEndpointUri": "https://idp/token",
    "clientId": "me",
    "clientSecret": {"secretName": "oauth", "key": "secret"},
    "scope": "kafka",
}


def test_plaintext_needs_no_secret() -> None:
    spec = spec_of()

    assert keys_by_secret(spec) == {}
    connection = connection_in(spec, Path("/run"))
    assert (connection.tls, connection.ca_file, connection.authentication.type) == (
        False,
        None,
        AuthenticationType.NONE,
    )


def test_every_kind_of_authentication_names_its_files() -> None:
    folder = Path("/run")

    scram = connection_in(spec_of(tls=TRUSTED, authentication=SCRAM), folder)
    assert scram.ca_file == folder / "ca" / "ca.crt"
    assert scram.authentication.username == "me"
    assert scram.authentication.password_file == folder / "login" / "pw"

    mtls = connection_in(spec_of(tls={}, authentication=MTLS), folder).authentication
    assert (mtls.certificate_file, mtls.key_file) == (folder / "us" / "tls.crt", folder / "us" / "tls.key")

    oauth = connection_in(spec_of(tls={}, authentication=OAUTH), folder).authentication
    assert oauth.type is AuthenticationType.OAUTH
    assert (oauth.token_endpoint_uri, oauth.client_id, oauth.scope) == ("https://idp/token", "me", "kafka")
    assert oauth.client_secret_file == folder / "oauth" / "secret"


def test_several_authorities_become_one_file_here_and_none_in_a_pod() -> None:
    spec = spec_of(
        tls={"trustedCertificates": [*TRUSTED["trustedCertificates"], {"secretName": "b", "certificate": "c"}]}
    )

    contents = file_contents(spec, {"ca": {"ca.crt": PEM}, "b": {"c": PEM}})

    bundle = connection_in(spec, Path("/run")).ca_file
    assert bundle is not None
    assert contents[bundle.name].count(b"BEGIN CERTIFICATE") == 2
    assert connection_with_mounts(spec, lambda s, k: Path("/etc", s, k)) is None
    assert connection_with_mounts(spec_of(tls=TRUSTED), lambda s, k: Path("/etc", s, k)) is not None


FLAWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no Secret": ({"ca": {"ca.crt": PEM}, "login": None}, "SecretNotFound", "no Secret login"),
    "no key": ({"ca": {"ca.crt": PEM}, "login": {"x": b"y"}}, "SecretKeyNotFound", "has no key pw"),
    "no PEM": ({"ca": {"ca.crt": b"hello"}, "login": {"pw": b"s"}}, "SecretUnusable", "not in PEM form"),
    "empty": ({"ca": {"ca.crt": PEM}, "login": {"pw": b" \n"}}, "SecretUnusable", "is empty"),
    "binary": ({"ca": {"ca.crt": PEM}, "login": {"pw": b"\xff\xfe"}}, "SecretUnusable", "not UTF-8"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_named_with_secret_and_key(flaw: str) -> None:
    secrets, reason, words = FLAWS[flaw]

    with pytest.raises(UnusableSecret, match=words) as raised:
        file_contents(spec_of(tls=TRUSTED, authentication=SCRAM), secrets)

    assert raised.value.reason == reason


def test_the_digest_changes_with_a_secret_and_with_the_spec() -> None:
    spec = spec_of(authentication=SCRAM)
    digests = {
        digest_of(spec, {"login/pw": b"a"}),
        digest_of(spec, {"login/pw": b"b"}),
        digest_of(spec_of(authentication={**SCRAM, "username": "you"}), {"login/pw": b"a"}),
    }

    assert len(digests) == 3
    assert digest_of(spec, {"login/pw": b"a"}) in digests


def test_files_are_private_and_replaced_as_a_set(tmp_path: Path) -> None:
    files = ConnectionFiles(tmp_path / "run")
    folder = files.put("uid", {"us/tls.crt": b"1", "us/tls.key": b"1", "old/x": b"1"})
    before = folder.resolve()

    again = files.put("uid", {"us/tls.crt": b"2", "us/tls.key": b"2"})

    assert again == folder == files.folder("uid")
    assert folder.resolve() != before
    assert not before.exists()
    assert (folder / "us" / "tls.crt").read_bytes() == b"2"
    assert not (folder / "old").exists()
    assert stat.S_IMODE((folder / "us" / "tls.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "us").stat().st_mode) == 0o700

    files.remove("uid")
    assert not (tmp_path / "run" / "uid").exists()


def test_what_an_earlier_process_left_is_removed(tmp_path: Path) -> None:
    ConnectionFiles(tmp_path / "run").put("uid", {"a/b": b"secret"})

    ConnectionFiles(tmp_path / "run")

    assert list((tmp_path / "run").iterdir()) == []


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FilesFailure, match="TIDEGATE_RUNTIME_DIRECTORY"):
        ConnectionFiles(tmp_path / "run")


CONNECT = {
    "name": "main",
    "url": "https://connect:8083",
    "trustedCertificates": [
        {"secretName": "ca", "certificate": "ca.crt"},
        {"secretName": "ca", "certificate": "old.crt"},
    ],
    "authentication": {
        "username": "me",
        "passwordSecret": {"secretName": "connect", "password": "pw"},
    },
}


def test_what_connects_workers_need_is_read_and_is_not_for_jobs(tmp_path: Path) -> None:
    spec = spec_of(connect=[CONNECT, {"name": "plain", "url": "http://connect:8083"}])

    assert keys_by_secret(spec) == {"ca": ("ca.crt", "old.crt"), "connect": ("pw",)}
    assert keys_for_kafka(spec) == keys_for_registry(spec) == {}
    contents = file_contents(spec, {"ca": {"ca.crt": PEM, "old.crt": PEM}, "connect": {"pw": b"secret"}})
    files = ConnectionFiles(tmp_path / "files")
    folder = files.put("uid", contents)
    clusters = connect_clusters_in(spec, folder)
    main, plain = clusters["main"], clusters["plain"]
    assert (main.url, main.username) == ("https://connect:8083", "me")
    assert main.password_file is not None
    assert main.password_file.read_bytes() == b"secret"
    assert main.ca_file is not None
    assert main.ca_file.read_bytes().count(b"BEGIN") == 2
    assert (plain.ca_file, plain.password_file, plain.username) == (None, None, "")


def test_a_secret_of_connects_workers_that_is_not_there_is_named_and_keeps_nothing_else_from_being_reached() -> None:
    other = {**CONNECT, "name": "other", "authentication": None, "trustedCertificates": CONNECT["trustedCertificates"]}
    spec = spec_of(tls=TRUSTED, connect=[CONNECT, other])
    secrets = {"ca": {"ca.crt": PEM, "old.crt": PEM}, "connect": None}

    [(name, unusable)] = unusable_clusters(spec, secrets).items()
    assert (name, unusable.reason) == ("main", "SecretNotFound")
    assert re.search(r"spec.connect\[0\].authentication.passwordSecret.*Secret connect", str(unusable))
    contents = file_contents(spec, secrets)
    assert {"ca/ca.crt", "ca/old.crt", "_connect_other.pem"} == contents.keys()
    assert connect_clusters_in(spec, Path("/run"), but={"main"}).keys() == {"other"}
    with pytest.raises(UnusableSecret, match=r"spec.tls.trustedCertificates\[0\]"):
        file_contents(spec, {"ca": None, "connect": {"pw": b"secret"}})


def test_a_schema_registry_has_secrets_of_its_own() -> None:
    """Jobs that do not ask it are not given them (``keys_for_kafka``)."""
    password = {"secretName": "registry", "password": "pw"}
    basic = {"type": "basic", "username": "me", "passwordSecret": password}
    registry = {"url": "https://registry:8081", "tls": TRUSTED, "authentication": basic}
    spec = spec_of(authentication=SCRAM, schemaRegistry=registry)

    assert keys_by_secret(spec) == {"login": ("pw",), "ca": ("ca.crt",), "registry": ("pw",)}
    assert keys_for_kafka(spec) == {"login": ("pw",)}
    assert keys_for_registry(spec) == {"ca": ("ca.crt",), "registry": ("pw",)}
    assert registry_by(spec, lambda s, k: Path("/etc", s, k)) == Registry(
        "https://registry:8081", Path("/etc/ca/ca.crt"), "me", Path("/etc/registry/pw")
    )
    assert registry_by(spec_of(), lambda s, k: Path("/etc", s, k)) is None
    with pytest.raises(UnusableSecret, match=r"authentication\.passwordSecret: there is no Secret"):
        file_contents(spec, {"login": {"pw": b"x"}, "ca": {"ca.crt": PEM}, "registry": None})

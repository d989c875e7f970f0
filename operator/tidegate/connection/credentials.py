"""From a ``KafkaConnection`` and the Secrets it names to a :class:`Connection` and the files behind it. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidegate.audit.records import AuditTopic
from tidegate.connect.ports import ConnectCluster
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection, Registry
from tidegate.resources.authentication import AuthenticationSpec, CertificateSource
from tidegate.resources.connect import ConnectClusterSpec
from tidegate.resources.connection import KafkaConnectionSpec

SECRET_NOT_FOUND: Final = "SecretNotFound"  # noqa: S105 - a condition's reason
SECRET_KEY_NOT_FOUND: Final = "SecretKeyNotFound"  # noqa: S105 - a condition's reason
SECRET_UNUSABLE: Final = "SecretUnusable"  # noqa: S105 - a condition's reason
SECRET_NOT_READABLE: Final = "SecretNotReadable"  # noqa: S105 - a condition's reason

_BUNDLE: Final = "trusted-certificates.pem"
_PEM: Final = b"-----BEGIN "


@dataclass(frozen=True, slots=True)
class Unread:
    """A Secret that the API server does not let the operator read. ``why``: as it says it."""

    why: str


Secrets = Mapping[str, Mapping[str, bytes] | Unread | None]
"""Values by Secret and key; ``None`` for a Secret that is not there."""

FileOf = Callable[[str, str], Path]
"""Where a key of a Secret is found as a file."""


class UnusableSecret(ValueError):
    """A Secret lacks what the connection needs. Names it; never holds a value."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason: Final = reason


@dataclass(frozen=True, slots=True)
class SecretKeyRef:
    """One value: where it is, what for, and whether it has to be PEM."""

    secret: str
    key: str
    field: str
    pem: bool


def needed(spec: KafkaConnectionSpec) -> tuple[SecretKeyRef, ...]:
    """Every value the connection, its schema registry and its Connect clusters need, in the order of the spec."""
    return (*_needed(spec), *_needed_by_registry(spec), *_needed_for_connect(spec))


def _needed_by_registry(spec: KafkaConnectionSpec) -> Iterator[SecretKeyRef]:
    registry = spec.schema_registry
    if registry is None:
        return
    for source in registry.tls.trusted_certificates if registry.tls is not None else ():
        path = "schemaRegistry.tls.trustedCertificates[0]"
        yield SecretKeyRef(source.secret_name, source.certificate, path, pem=True)
    if registry.authentication is not None:
        password = registry.authentication.password_secret
        path = "schemaRegistry.authentication.passwordSecret"
        yield SecretKeyRef(password.secret_name, password.password, path, pem=False)


def _needed_for_connect(spec: KafkaConnectionSpec, but: Collection[str] = ()) -> Iterator[SecretKeyRef]:
    """For the operator alone, not for jobs. ``but``: not for these clusters."""
    for n, cluster in enumerate(spec.connect):
        if cluster.name not in but:
            yield from _needed_by_cluster(n, cluster)


def _needed_by_cluster(n: int, cluster: ConnectClusterSpec) -> Iterator[SecretKeyRef]:
    for m, source in enumerate(cluster.trusted_certificates):
        field = f"connect[{n}].trustedCertificates[{m}]"
        yield SecretKeyRef(source.secret_name, source.certificate, field, pem=True)
    if cluster.authentication is not None:
        secret = cluster.authentication.password_secret
        field = f"connect[{n}].authentication.passwordSecret"
        yield SecretKeyRef(secret.secret_name, secret.password, field, pem=False)


def _needed(spec: KafkaConnectionSpec) -> Iterator[SecretKeyRef]:
    for n, source in enumerate(_trusted(spec)):
        yield SecretKeyRef(source.secret_name, source.certificate, f"tls.trustedCertificates[{n}]", pem=True)
    auth = spec.authentication
    if auth is None:
        return
    if auth.password_secret is not None:
        source_of_password = auth.password_secret
        yield SecretKeyRef(
            source_of_password.secret_name, source_of_password.password, "authentication.passwordSecret", pem=False
        )
    if auth.certificate_and_key is not None:
        pair = auth.certificate_and_key
        yield SecretKeyRef(pair.secret_name, pair.certificate, "authentication.certificateAndKey", pem=True)
        yield SecretKeyRef(pair.secret_name, pair.key, "authentication.certificateAndKey", pem=True)
    if auth.client_secret is not None:
        yield SecretKeyRef(auth.client_secret.secret_name, auth.client_secret.key, "authentication.clientSecret", False)


def _trusted(spec: KafkaConnectionSpec) -> tuple[CertificateSource, ...]:
    return spec.tls.trusted_certificates if spec.tls is not None else ()


def keys_by_secret(spec: KafkaConnectionSpec) -> dict[str, tuple[str, ...]]:
    """The keys needed of each Secret."""
    return _keys(needed(spec))


def keys_for_kafka(spec: KafkaConnectionSpec) -> dict[str, tuple[str, ...]]:
    """Those of them that the brokers are reached by."""
    return _keys(_needed(spec))


def keys_for_registry(spec: KafkaConnectionSpec) -> dict[str, tuple[str, ...]]:
    """Those of them that the schema registry is reached by."""
    return _keys(_needed_by_registry(spec))


def _keys(refs: Iterable[SecretKeyRef]) -> dict[str, tuple[str, ...]]:
    keys: dict[str, list[str]] = {}
    for ref in refs:
        found = keys.setdefault(ref.secret, [])
        if ref.key not in found:
            found.append(ref.key)
    return {secret: tuple(found) for secret, found in keys.items()}


def unusable_clusters(spec: KafkaConnectionSpec, secrets: Secrets) -> dict[str, UnusableSecret]:
    """The Connect clusters that can't be reached, by name: what is wrong with a Secret that one of them needs.

    They are the concern of those who pause connectors, and of nobody else who uses the connection.
    """
    found = {}
    for n, cluster in enumerate(spec.connect):
        try:
            for ref in _needed_by_cluster(n, cluster):
                _value(ref, secrets)
        except UnusableSecret as unusable:
            found[cluster.name] = unusable
    return found


def file_contents(spec: KafkaConnectionSpec, secrets: Secrets) -> dict[str, bytes]:
    """The files to write, by path below the connection's folder; none for :func:`unusable_clusters`. Raises
    ``UnusableSecret`` for the first flaw in what the brokers and the schema registry are reached by."""
    lacking = unusable_clusters(spec, secrets)
    contents: dict[str, bytes] = {}
    for ref in (*_needed(spec), *_needed_by_registry(spec), *_needed_for_connect(spec, lacking)):
        contents[f"{ref.secret}/{ref.key}"] = _value(ref, secrets)
    usable = [cluster for cluster in spec.connect if cluster.name not in lacking]
    bundles = {_BUNDLE: _trusted(spec)} | {_bundle_of(c.name): c.trusted_certificates for c in usable}
    for path, trusted in bundles.items():
        if len(trusted) > 1:
            contents[path] = b"\n".join(contents[f"{s.secret_name}/{s.certificate}"].strip() for s in trusted) + b"\n"
    return contents


def _bundle_of(connect_cluster: str) -> str:
    # Next to the folders of Secrets, whose names have no underscore.
    return f"_connect_{connect_cluster}.pem"


def _value(ref: SecretKeyRef, secrets: Secrets) -> bytes:
    secret = secrets.get(ref.secret)
    if secret is None:
        raise UnusableSecret(
            SECRET_NOT_FOUND, f"spec.{ref.field}: there is no Secret {ref.secret} in this namespace: create it"
        )
    if isinstance(secret, Unread):
        raise UnusableSecret(
            SECRET_NOT_READABLE,
            f"spec.{ref.field}: the operator may not read Secret {ref.secret}: permit it, for example by "
            f"rbac.secrets of the chart ({secret.why})",
        )
    value = secret.get(ref.key)
    if value is None:
        raise UnusableSecret(
            SECRET_KEY_NOT_FOUND,
            f"spec.{ref.field}: Secret {ref.secret} has no key {ref.key}: add it, or name one of the keys it has "
            f"({', '.join(sorted(secret)) or 'none'})",
        )
    if ref.pem and _PEM not in value:
        raise UnusableSecret(
            SECRET_UNUSABLE, f"spec.{ref.field}: key {ref.key} of Secret {ref.secret} is not in PEM form"
        )
    if not ref.pem:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise UnusableSecret(
                SECRET_UNUSABLE, f"spec.{ref.field}: key {ref.key} of Secret {ref.secret} is not UTF-8 text"
            ) from None
        if not text.strip():
            raise UnusableSecret(SECRET_UNUSABLE, f"spec.{ref.field}: key {ref.key} of Secret {ref.secret} is empty")
    return value


def digest_of(spec: KafkaConnectionSpec, contents: Mapping[str, bytes]) -> str:
    """Changes whenever the connection or one of its secrets does. Not for showing: it is made of secrets.

    Whoever may use it for what is no part of it, nor whether it is frozen: neither may cut off anybody for a moment.
    """
    digest = hashlib.sha256(spec.model_dump_json(by_alias=True, exclude={"allow", "freeze"}).encode())
    for path, value in sorted(contents.items()):
        digest.update(f"\0{path}\0{len(value)}\0".encode())
        digest.update(value)
    return digest.hexdigest()


def connection_in(spec: KafkaConnectionSpec, folder: Path) -> Connection:
    """The connection with its files in ``folder``, as :func:`file_contents` lays them out."""
    several = len(_trusted(spec)) > 1
    return _connection(spec, lambda secret, key: folder / secret / key, folder / _BUNDLE if several else None)


def connect_clusters_in(
    spec: KafkaConnectionSpec, folder: Path, but: Collection[str] = ()
) -> dict[str, ConnectCluster]:
    """The Connect clusters by name, ``but`` those, with their files in ``folder``, as :func:`file_contents` lays them
    out."""
    clusters = {}
    for cluster in spec.connect:
        if cluster.name in but:
            continue
        trusted, login = cluster.trusted_certificates, cluster.authentication
        one = folder / trusted[0].secret_name / trusted[0].certificate if trusted else None
        clusters[cluster.name] = ConnectCluster(
            name=cluster.name,
            url=cluster.url,
            ca_file=folder / _bundle_of(cluster.name) if len(trusted) > 1 else one,
            username=login.username if login is not None else "",
            password_file=(
                folder / login.password_secret.secret_name / login.password_secret.password
                if login is not None
                else None
            ),
        )
    return clusters


def audit_topic_of(spec: KafkaConnectionSpec) -> AuditTopic | None:
    """Where changes are recorded that are made through the connection."""
    audit = spec.audit
    return None if audit is None else AuditTopic(audit.topic, audit.required, audit.replication_factor)


def registry_by(spec: KafkaConnectionSpec, file_of: FileOf) -> Registry | None:
    """The schema registry, with its files where each key of a Secret is one; ``None`` where there is none."""
    registry = spec.schema_registry
    if registry is None:
        return None
    authentication = registry.authentication
    trusted = registry.tls.trusted_certificates if registry.tls is not None else ()
    return Registry(
        registry.url,
        ca_file=file_of(trusted[0].secret_name, trusted[0].certificate) if trusted else None,
        username=authentication.username if authentication is not None else None,
        password_file=(
            file_of(authentication.password_secret.secret_name, authentication.password_secret.password)
            if authentication is not None
            else None
        ),
    )


def connection_with_mounts(spec: KafkaConnectionSpec, file_of: FileOf) -> Connection | None:
    """The connection where each Secret is mounted as it is; ``None`` when several trusted certificates would have to be
    one file."""
    return None if len(_trusted(spec)) > 1 else _connection(spec, file_of, None)


def _connection(spec: KafkaConnectionSpec, file_of: FileOf, bundle: Path | None) -> Connection:
    trusted = _trusted(spec)
    ca_file = bundle
    if bundle is None and trusted:
        ca_file = file_of(trusted[0].secret_name, trusted[0].certificate)
    auth = spec.authentication
    return Connection(
        bootstrap_servers=spec.bootstrap_servers,
        tls=spec.tls is not None,
        ca_file=ca_file,
        authentication=Authentication() if auth is None else _authentication(auth, file_of),
        properties=dict(spec.properties),
        control_topic=spec.control_topic.name,
        ack_topic=spec.control_topic.ack_topic,
        control_replication_factor=spec.control_topic.replication_factor,
    )


def _authentication(auth: AuthenticationSpec, file_of: FileOf) -> Authentication:
    password, pair, secret = auth.password_secret, auth.certificate_and_key, auth.client_secret
    return Authentication(
        type=AuthenticationType(auth.type.value),
        username=auth.username,
        password_file=None if password is None else file_of(password.secret_name, password.password),
        certificate_file=None if pair is None else file_of(pair.secret_name, pair.certificate),
        key_file=None if pair is None else file_of(pair.secret_name, pair.key),
        token_endpoint_uri=auth.token_endpoint_uri,
        client_id=auth.client_id,
        client_secret_file=None if secret is None else file_of(secret.secret_name, secret.key),
        scope=auth.scope,
    )

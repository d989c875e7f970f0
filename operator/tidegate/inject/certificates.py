"""Own certificates for webhook and metrics: a CA, and a server certificate that it signed, each renewed at two thirds
of its life.

A new CA signs nothing until API servers and Prometheus had time to learn of it, and the one before stays trusted until
it expires.
Keys are P-256. Decisions are pure but for the keys' randomness; nothing here reads a clock.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CA_LIFE: Final = timedelta(days=365)
_SERVER_LIFE: Final = timedelta(days=90)
_BEFORE: Final = timedelta(minutes=5)
"""A clock that is this much behind still takes a new certificate."""
_NOT_OURS: Final = (
    InvalidSignature,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.UnsupportedGeneralNameType,
)
"""By what a certificate is known that somebody else has made."""
_LEARNT: Final = timedelta(minutes=10)
"""How long a new CA is trusted before it signs. Prometheus' operator learns of a changed Secret at once, or after five
minutes; the kubelet brings it to Prometheus within two more.
"""

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"
_SIGNER: Final = "ca.key"
_NEXT: Final = "next-ca.key"


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None


@dataclass(frozen=True, slots=True)
class Certificates:
    """``authorities``: all that are to be trusted, the oldest first; those that can still sign have their key."""

    authorities: tuple[Authority, ...]
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def bundle(self) -> bytes:
        """What an API server has to trust, PEM."""
        return b"".join(_pem(authority.certificate) for authority in self.authorities)

    @property
    def expires(self) -> datetime:
        return self.certificate.not_valid_after_utc


def renewed(current: Certificates | None, names: Sequence[str], now: datetime) -> Certificates:
    """What is to be used now, for a server of these names (DNS names or IP addresses): ``current`` itself where
    nothing is due.
    """
    authorities = tuple(a for a in (current.authorities if current else ()) if not _is_over(a.certificate, now))
    able = [a for a in authorities if a.key is not None and _has_begun(a.certificate, now)]
    if not able:
        able = [_authority(now)]
        authorities = (*authorities, able[0])
    elif _is_due(able[-1].certificate, now):
        able.append(_authority(now))
        authorities = (*authorities, able[-1])
    learnt = [a for a in able if now - a.certificate.not_valid_before_utc >= _BEFORE + _LEARNT]
    signer = (learnt or able)[-1 if learnt else 0]
    serving = current is not None and _serves(current, signer, names, now)
    if current is not None and serving and authorities == current.authorities:
        return current
    if current is not None and serving:
        return Certificates(_able_to_sign(authorities, able), current.certificate, current.key)
    certificate, key = _issue(signer, names, now)
    return Certificates(_able_to_sign(authorities, [signer, *able[able.index(signer) + 1 :]]), certificate, key)


def written(certificates: Certificates) -> dict[str, bytes]:
    """As a Secret keeps them."""
    able = [a for a in certificates.authorities if a.key is not None]
    kept = {
        CERTIFICATE: _pem(certificates.certificate),
        KEY: _key_pem(certificates.key),
        BUNDLE: certificates.bundle,
    }
    for name, authority in zip((_SIGNER, _NEXT), able[-2:], strict=False):
        if authority.key is not None:
            kept[name] = _key_pem(authority.key)
    return kept


def read(data: Mapping[str, bytes]) -> Certificates | None:
    """What :func:`written` wrote; ``None`` where anything is missing or unreadable: it is made anew then."""
    try:
        found = x509.load_pem_x509_certificates(data[BUNDLE])
        certificate, key = x509.load_pem_x509_certificate(data[CERTIFICATE]), _read_key(data[KEY])
        signers = [_read_key(data[name]) for name in (_SIGNER, _NEXT) if name in data]
        by_public = {_public(signer): signer for signer in signers}
        authorities = tuple(Authority(one, by_public.get(_public(one))) for one in found)
        return Certificates(authorities, certificate, key) if _public(certificate) == _public(key) else None
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return None


# --- decide -----------------------------------------------------------------------------------------------------------


def _able_to_sign(authorities: Iterable[Authority], able: Sequence[Authority]) -> tuple[Authority, ...]:
    """Those with only the last two that can sign keeping their keys."""
    last = able[-2:]
    return tuple(a if a in last else Authority(a.certificate, None) for a in authorities)


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * 2 / 3


def _has_begun(certificate: x509.Certificate, now: datetime) -> bool:
    """Not where a clock that was ahead has made it: nobody takes it yet."""
    return now >= certificate.not_valid_before_utc


def _is_over(certificate: x509.Certificate, now: datetime) -> bool:
    return now >= certificate.not_valid_after_utc


def _serves(current: Certificates, signer: Authority, names: Sequence[str], now: datetime) -> bool:
    certificate = current.certificate
    try:
        certificate.verify_directly_issued_by(signer.certificate)
        told = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (*_NOT_OURS, ValueError, TypeError):
        return False
    # More names do no harm: while two versions of the operator run beside each other, one of them asks for fewer.
    is_in_time = _has_begun(certificate, now) and not _is_due(certificate, now)
    return is_in_time and set(told) >= set(_alternative_names(names))


# --- make -------------------------------------------------------------------------------------------------------------


def _authority(now: datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tidegate webhook CA {now:%Y-%m-%dT%H:%M:%SZ}")])
    usage = _usage(key_cert_sign=True, crl_sign=True)
    certificate = (
        _begun(name, name, key, now, _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def _issue(
    signer: Authority, names: Sequence[str], now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    if signer.key is None:
        raise ValueError("an authority signs with its key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tidegate webhook")])
    life = min(_SERVER_LIFE, signer.certificate.not_valid_after_utc - now)
    certificate = (
        _begun(subject, signer.certificate.subject, key, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternative_names(names)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        .sign(signer.key, hashes.SHA256())
    )
    return certificate, key


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(names: Iterable[str]) -> list[x509.GeneralName]:
    return [_alternative_name(name) for name in names]


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


# --- read and write ---------------------------------------------------------------------------------------------------


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read_key(data: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(data, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("it is no key of an elliptic curve")
    return key


def _public(holder: x509.Certificate | ec.EllipticCurvePrivateKey) -> bytes:
    return holder.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)

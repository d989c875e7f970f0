"""The webhook's own certificates through the years."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.x509 import DNSName, load_pem_x509_certificates
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tidegate.inject.certificates import Certificates, read, renewed, written

NAMES = ("tidegate.ns.svc", "127.0.0.1")
START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


OF_ANOTHER_CURVE = b"""\
-----BEGIN CERTIFICATE-----
MIIBZDCCAQ+gAwIBAgIUFA/7IrFmAe4yAixsXaQCnll/ptswCgYIKoZIzj0EAwIw
DDEKMAgGA1UEAwwBeDAeFw0yNjExMjkxNDQxNDNaFw0yNjEyMDkxNDQxNDNaMAwx
CjAIBgNVBAMMAXgwVTATBgcqhkjOPQIBBggqhkjOPQMBBAM+AARaI4BpMMFYqU7B
qQPAEzzFLu7hIac50yRhkhUEl1AKwIK3W1qvRms4NuaZ0Ei+npJZ/Hjht+rSDIuN
uimjUzBRMB0GA1UdDgQWBBQ7/xGW/pX6xm7Gwj+bro0tnSMjozAfBgNVHSMEGDAW
gBQ7/xGW/pX6xm7Gwj+bro0tnSMjozAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49
BAMCA0MAMEACHhMy21wbMBfHlRlYazhtf0bE1kzSldharu0Xv5dBtwIeU5eRosXR
m/ldJQKHU0Unq06DyG6an6yX2Aqqai73
-----END CERTIFICATE-----
"""
"""Of X9.62's prime239v1, which cryptography does not know: openssl ecparam -name prime239v1 -genkey, and req -x509."""


def trusts(bundle: bytes, served: Certificates, at: datetime) -> bool:
    """Whether who trusts these CA certificates takes the one that is served."""
    verifier = PolicyBuilder().store(Store(load_pem_x509_certificates(bundle))).time(at)
    try:
        verifier.build_server_verifier(DNSName(NAMES[0])).verify(served.certificate, [])
    except VerificationError:
        return False
    return True


def test_what_was_written_is_read_and_nothing_is_due() -> None:
    made = renewed(None, NAMES, START)

    found = read(written(made))

    assert found is not None
    assert found.bundle == made.bundle
    assert renewed(found, NAMES, START + DAY) is found
    assert trusts(found.bundle, found, START)


def test_a_server_of_python_takes_the_pair(tmp_path: Path) -> None:
    for name, value in written(renewed(None, NAMES, START)).items():
        (tmp_path / name).write_bytes(value)

    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")


def test_it_is_renewed_at_two_thirds_of_its_life_by_the_same_authority() -> None:
    made = renewed(None, NAMES, START)

    assert renewed(made, NAMES, START + 59 * DAY) is made
    later = renewed(made, NAMES, START + 61 * DAY)

    assert later.certificate != made.certificate
    assert later.bundle == made.bundle


def test_other_names_need_another_certificate() -> None:
    made = renewed(None, NAMES, START)

    assert renewed(made, ("other.ns.svc",), START).certificate != made.certificate


def test_through_three_years_whatever_an_api_server_learnt_ten_minutes_ago_is_enough() -> None:
    learnt, now = b"", START
    current: Certificates | None = None
    bundles = set()
    while now < START + 3 * 365 * DAY:
        fresh = renewed(current, NAMES, now)
        if current is not None:
            assert trusts(learnt, fresh, now), now
        again = read(written(fresh))
        assert again is not None
        # Two looks a day, and those around each change as they come in real time.
        now += timedelta(minutes=11) if fresh is not current else DAY / 2
        current, learnt = again if fresh is not current else current, fresh.bundle
        bundles.add(learnt)
        assert len(load_pem_x509_certificates(learnt)) <= 2
        assert current.expires > now

    assert len(bundles) > 4


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    made = renewed(None, NAMES, START)
    due = START + 250 * DAY
    current = renewed(renewed(made, NAMES, START + 200 * DAY), NAMES, due)
    assert trusts(made.bundle, current, due)
    assert len(load_pem_x509_certificates(current.bundle)) == 2

    soon, later = (renewed(current, NAMES, due + timedelta(minutes=m)) for m in (9, 11))

    assert soon.certificate == current.certificate
    assert not trusts(made.bundle, later, due + timedelta(minutes=11))
    assert trusts(current.bundle, later, due + timedelta(minutes=11))


def test_what_was_made_by_a_clock_that_was_ahead_serves_nobody_and_is_made_anew_by_the_right_one() -> None:
    ahead = renewed(None, NAMES, START + 30 * DAY)

    found = read(written(renewed(ahead, NAMES, START)))

    assert found is not None
    assert trusts(found.bundle, found, START)
    # Whoever learnt of it before it was made anew goes on as it is.
    assert renewed(found, NAMES, START + DAY) is found
    assert renewed(found, NAMES, START + 31 * DAY) is found


def test_a_certificate_alone_that_was_made_by_a_clock_that_was_ahead_is_made_anew() -> None:
    made = renewed(None, NAMES, START)
    ahead = renewed(made, NAMES, START + 70 * DAY)

    again = renewed(ahead, NAMES, START + DAY)

    assert trusts(made.bundle, again, START + DAY)
    assert again.bundle == made.bundle


def test_after_a_long_absence_all_is_made_anew() -> None:
    made = renewed(None, NAMES, START)

    anew = renewed(made, NAMES, START + 1000 * DAY)

    assert trusts(anew.bundle, anew, START + 1000 * DAY)
    assert len(load_pem_x509_certificates(anew.bundle)) == 1


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key", "ca.crt"])
def test_what_is_incomplete_or_does_not_fit_counts_as_none(broken: str) -> None:
    kept, other = written(renewed(None, NAMES, START)), written(renewed(None, NAMES, START))

    assert read({name: value for name, value in kept.items() if name != broken}) is None
    assert read(kept | {broken: b"garbage"}) is None
    assert (read(kept | {broken: other[broken]}) is None) == (broken != "ca.crt")
    assert read({}) is None


@pytest.mark.parametrize("name", ["tls.crt", "ca.crt"])
def test_a_certificate_with_a_key_that_nobody_here_knows_counts_as_none(name: str) -> None:
    """As somebody else may have put it there: the operator would look after its certificates no more."""
    kept = written(renewed(None, NAMES, START))

    assert read(kept | {name: OF_ANOTHER_CURVE}) is None

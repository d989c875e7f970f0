"""Certificates for one run, made with OpenSSL: a CA, a server for 127.0.0.1, a client. Valid for ten days."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from devstack import prerequisites
from devstack.errors import StackError

DAYS = 10


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files of one certificate and its key (PKCS #8)."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """A CA of one run, in its secrets folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """The CA's certificate, PEM: what clients trust."""
        return self.folder / "ca.crt"

    @classmethod
    def create(cls, folder: Path) -> "CertificateAuthority":
        """Make a new CA in `folder`."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = cls(folder)
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(folder / "ca.key"), "-out", str(authority.certificate)),
            *("-days", str(DAYS), "-subj", "/CN=tidegate dev CA"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )
        return authority

    def issue(self, name: str, *, alternative_names: str = "") -> Certificate:
        """A certificate with CN `name`; a server's has `alternative_names`, as in ``DNS:localhost,IP:127.0.0.1``."""
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        made = Certificate(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(made.key), "-out", str(request), "-subj", f"/CN={name}"),
        )
        # Python 3.13 verifies strictly: without key identifiers it refuses the chain.
        lines = [
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature",
            "extendedKeyUsage=serverAuth,clientAuth",
            "subjectKeyIdentifier=hash",
            "authorityKeyIdentifier=keyid",
        ]
        if alternative_names:
            lines.append(f"subjectAltName={alternative_names}")
        extensions.write_text("\n".join(lines) + "\n")
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self.folder / "ca.key")),
            *("-CAcreateserial", "-days", str(DAYS), "-extfile", str(extensions), "-out", str(made.certificate)),
        )
        made.key.chmod(0o600)
        return made


def signing_key(path: Path) -> None:
    """An EC key that signs service-account tokens."""
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
    path.chmod(0o600)


def _openssl(*arguments: str) -> None:
    command = [prerequisites.openssl().path, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise StackError(f"`{' '.join(command[:2])}` failed: {done.stderr.strip()}")

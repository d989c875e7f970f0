"""Who may call the webhook where that was said: API servers that show a client certificate. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Callers:
    """``ca``: a file with the CA certificates, PEM, by which their certificates are signed. ``names``: common names, or
    DNS names, of which a certificate has to have one; empty: any certificate by that CA will do.
    """

    ca: Path
    names: frozenset[str]

    def includes(self, certificate: Mapping[str, Any] | None) -> bool:
        """``certificate``: as ``ssl.SSLSocket.getpeercert`` gives it, which was verified."""
        if not certificate:
            return False
        told = {value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"}
        told |= {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
        return not self.names or not self.names.isdisjoint(told)

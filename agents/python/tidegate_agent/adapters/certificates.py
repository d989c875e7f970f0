"""Which client certificate was loaded into an ``ssl.SSLContext``: the context itself does not tell."""

from __future__ import annotations

import functools
import os
import ssl
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Password: TypeAlias = str | bytes | bytearray | None


@dataclass(frozen=True)
class ClientCertificate:
    """PEM files; the key may be in the certificate's."""

    certificate: str
    key: str
    password: str | None = field(default=None, repr=False)


_loaded: weakref.WeakKeyDictionary[ssl.SSLContext, ClientCertificate] = weakref.WeakKeyDictionary()


def note_certificates() -> None:
    """From now on remember what is loaded into contexts; ``client_certificate`` tells it."""
    plain: Any = ssl.SSLContext.load_cert_chain
    if hasattr(plain, "tidegate_plain"):
        return

    @functools.wraps(plain)
    def load_cert_chain(
        self: ssl.SSLContext, certfile: Any, keyfile: Any = None, password: Password | Callable[[], Password] = None
    ) -> None:
        secret = password() if callable(password) else password
        plain(self, certfile, keyfile, secret)
        text = secret.decode() if isinstance(secret, (bytes, bytearray)) else secret
        _loaded[self] = ClientCertificate(os.fsdecode(certfile), os.fsdecode(keyfile or certfile), text)

    vars(load_cert_chain)["tidegate_plain"] = plain
    setattr(ssl.SSLContext, "load_cert_chain", load_cert_chain)  # noqa: B010


def client_certificate(context: ssl.SSLContext) -> ClientCertificate | None:
    """The newest one that was loaded since ``note_certificates``."""
    return _loaded.get(context)

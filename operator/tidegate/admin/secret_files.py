"""Secrets given by value, in files that only we may read: a ``Connection`` names files and holds no secrets."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path


class SecretFiles:
    """A folder of mode 0700, made when the first secret is written; gone when this is closed, or the process ends."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._remove: Callable[[], object] | None = None

    def write(self, name: str, secret: str) -> Path:
        """The file ``name`` with the secret in it, of mode 0600."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
            self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(secret)
        return path

    def close(self) -> None:
        if self._remove is not None:
            self._remove()
        self._folder = self._remove = None

"""Secrets as files that only this process may read: client libraries take certificates and keys by path."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_LINK: Final = "current"


class FilesFailure(Exception):
    """The folder for secrets cannot be used; the message says why."""


class ConnectionFiles:
    """A folder with one folder a connection, all 0700, the files 0600.

    A connection's files are replaced as a set: ``<uid>/current`` is a symbolic link that is renamed over the old one,
    so a certificate never meets another one's key. What an earlier process left is removed at the start.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = root.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise FilesFailure(f"{root} is not a folder that this user owns: set TIDEGATE_RUNTIME_DIRECTORY")
            root.chmod(0o700)
            for left in root.iterdir():
                _remove(left)
        except OSError as error:
            raise FilesFailure(f"can't use {root}: {error.strerror}") from error

    def folder(self, uid: str) -> Path:
        """Where the connection's files are found; the same path for all their versions."""
        return self._root / uid / _LINK

    def put(self, uid: str, contents: Mapping[str, bytes]) -> Path:
        """Replace the connection's files; returns :meth:`folder`. Raises ``FilesFailure``."""
        home = self._root / uid
        link = home / _LINK
        try:
            home.mkdir(mode=0o700, exist_ok=True)
            version = Path(tempfile.mkdtemp(prefix="v-", dir=home))
            for path, value in contents.items():
                file = version / path
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(value)
            fresh = home / f"{version.name}.link"
            fresh.symlink_to(version.name)
            fresh.replace(link)
            for old in home.iterdir():
                if old != link and old.name != version.name:
                    _remove(old)
        except OSError as error:
            raise FilesFailure(f"can't write the secrets of connection {uid} to {home}: {error.strerror}") from error
        return link

    def remove(self, uid: str) -> None:
        _remove(self._root / uid)

    def close(self) -> None:
        """Remove everything."""
        _remove(self._root)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    elif path.is_dir():
        shutil.rmtree(path, ignore_errors=True)

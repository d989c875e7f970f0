"""A support archive: files below one folder, bounded in number and size, and an index of what is in it and what not."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any, Final

from tidegate.incident.seen import Unseen

VERSION: Final = 1
"""Of the index: raised when a member is removed or changes its meaning."""

MOST_FILES: Final = 2_000
MOST_BYTES: Final = 64 * 1024 * 1024
MOST_BYTES_OF_ONE: Final = 2 * 1024 * 1024
_MOST_OF_A_NAME: Final = 100


def safe_name(text: str) -> str:
    """As a name of a file: letters, digits, ``.``, ``_`` and ``-``, no dot in front; with a digest where it is another
    one than ``text``."""
    kept = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:_MOST_OF_A_NAME].lstrip(".")
    if kept == text and kept:
        return kept
    return f"{kept}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"


class Archive:
    """Written file by file to ``out``, as a gzip-compressed tar; ``close`` writes the index."""

    def __init__(self, out: IO[bytes], folder: str, at: datetime) -> None:
        self._tar = tarfile.open(fileobj=out, mode="w:gz")  # noqa: SIM115 - closed by close()
        self._folder, self._at = folder, at
        self._files: list[dict[str, Any]] = []
        self._left_out: list[Unseen] = []
        self._too_much: Counter[str] = Counter()
        """By folder, how many files were left out because the archive is full."""
        self._bytes = 0

    def left_out(self, unseen: Unseen) -> None:
        self._left_out.append(unseen)

    def add_json(self, path: tuple[str, ...], about: str, value: Mapping[str, Any]) -> None:
        self.add(path, about, json.dumps(value, indent=1, default=str) + "\n")

    def add(self, path: tuple[str, ...], about: str, text: str) -> None:
        """``path``: names that are made safe. What is too long is cut, what is too much left out, as the index says."""
        name, raw = "/".join(map(safe_name, path)), text.encode(errors="backslashreplace")
        if len(raw) > MOST_BYTES_OF_ONE:
            self.left_out(
                Unseen(name, f"it is too long, so its last {len(raw) - MOST_BYTES_OF_ONE} bytes were cut off")
            )
            raw = raw[:MOST_BYTES_OF_ONE]
        if len(self._files) >= MOST_FILES or self._bytes + len(raw) > MOST_BYTES:
            self._too_much["/".join(map(safe_name, path[:-1]))] += 1
            return
        self._bytes += len(raw)
        self._files.append({"name": name, "about": about, "bytes": len(raw)})
        self._write(name, raw)

    def close(self) -> Mapping[str, Any]:
        """The index, which is written last."""
        if self._too_much:
            folders = ", ".join(f"{number} in {folder or '.'}" for folder, number in self._too_much.items())
            what = f"{self._too_much.total()} file(s): {folders}"
            limits = f"{MOST_FILES} files, {MOST_BYTES // 1024 // 1024} MiB"
            self.left_out(Unseen(what, f"the archive is full ({limits})"))
        index = {
            "kind": "SupportArchive",
            "version": VERSION,
            "at": self._at.isoformat(),
            "files": self._files,
            "notIncluded": [{"what": unseen.what, "why": unseen.why} for unseen in self._left_out],
        }
        self._write("index.json", (json.dumps(index, indent=1) + "\n").encode())
        self._tar.close()
        return index

    def _write(self, name: str, raw: bytes) -> None:
        entry = tarfile.TarInfo(f"{self._folder}/{name}")
        entry.size, entry.mode, entry.mtime = len(raw), 0o600, int(self._at.timestamp())
        self._tar.addfile(entry, io.BytesIO(raw))

"""Long documents in ConfigMaps: compressed, as ``binaryData`` and text alike take them. Pure."""

from __future__ import annotations

import base64
import gzip
import io
import zlib
from typing import Final

LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Of what is unpacked: whoever may write a ConfigMap must not be able to fill the operator's memory with it."""

MOST_VALUES: Final = 3_000_000
"""Of what is unpacked, as far as its commas, brackets and ends of lines tell. All documents here are JSON, or lines of
it, of which each value takes many times the memory of the bytes that it may be written in: ``[],``."""


def pack(raw: bytes) -> str:
    """Base64 of gzip; the same for the same bytes."""
    return base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode()


def unpack(text: str, limit: int = LIMIT_BYTES) -> bytes:
    """Raises ``ValueError`` for what was not packed so, and for more than ``limit`` bytes or ``MOST_VALUES``."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(base64.b64decode(text))) as stream:
            raw = stream.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:  # gzip.BadGzipFile is an OSError
        raise ValueError(f"it can't be unpacked: {error}") from error
    if len(raw) > limit:
        raise ValueError(f"unpacked it is longer than {limit:,} bytes")
    if sum(map(raw.count, (b",", b"[", b"{", b"\n", b"\r"))) > MOST_VALUES:
        raise ValueError(f"unpacked it has more than {MOST_VALUES:,} values")
    return raw

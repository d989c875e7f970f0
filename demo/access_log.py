"""The records: real requests to a web site, each with its own time, keyed by who asked."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

ACCESS_LOG: Final = Path(__file__).resolve().parents[1] / "tests" / "data" / "access_log.gz"

_LINE: Final = re.compile(rb"(\S+) \S+ \S+ \[([^\]]+)\] ")


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the log. ``at`` is the time in the line; ``client_ip`` becomes the record's key."""

    client_ip: bytes
    at: datetime
    line: bytes

    @property
    def timestamp_ms(self) -> int:
        return round(self.at.timestamp() * 1000)


def read_requests(path: Path = ACCESS_LOG) -> Iterator[Request]:
    """All requests, in the order of the file. Raises ``ValueError`` for a line that is not of the combined format."""
    with gzip.open(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield read_request(line.rstrip(b"\n"))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from error


def read_request(line: bytes) -> Request:
    """Raises ``ValueError`` for a line that is not of the combined format."""
    found = _LINE.match(line)
    if found is None:
        raise ValueError(f"not a line of a combined access log: {line[:60]!r}")
    return Request(found[1], datetime.strptime(found[2].decode(), "%d/%b/%Y:%H:%M:%S %z"), line)

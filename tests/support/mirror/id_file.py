"""Producer ids in a file: who claims first, wins."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidegate.kafka.errors import Unavailable
from tidegate.mirror.model import Interrupted, ProducerIds


@dataclass(frozen=True, slots=True)
class IdFile:
    """Implements ``tidegate.mirror.ports.ProducerIdStore``: a file for each id, named by its place."""

    folder: Path
    new_id: Callable[[], int]

    def claim(self, after: int | None) -> ProducerIds | Interrupted:
        ids = self._ids()
        if after == (ids[-1] if ids else None):
            try:
                new = self.new_id()
            except Unavailable as error:
                return Interrupted(str(error))
            place = self.folder / str(len(ids))
            draft = self.folder / f"draft-{os.getpid()}"
            draft.write_text(json.dumps(new))
            try:
                place.hardlink_to(draft)
            except FileExistsError:
                pass  # somebody else was first
            finally:
                draft.unlink()
        return ProducerIds(tuple(self._ids()))

    def _ids(self) -> list[int]:
        found = []
        while (place := self.folder / str(len(found))).exists():
            found.append(int(json.loads(place.read_text())))
        return found

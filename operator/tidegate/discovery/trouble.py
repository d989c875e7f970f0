"""What keeps a watch from looking, in the log. Belongs to the event loop's thread."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class Trouble:
    """``name``: the connection's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said = ""

    def say(self, trouble: str) -> None:
        """Once for as long as it is the same; empty: nothing keeps it from looking any more."""
        if trouble and trouble != self._said:
            _log.warning("%s: %s", self._name, trouble)
        elif self._said and not trouble:
            _log.info("%s: looking for new partitions works again", self._name)
        self._said = trouble

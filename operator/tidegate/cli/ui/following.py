"""Keeps the board as the API server has it: a thread for each kind lists, follows changes, and lists anew if needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from tidegate.cli.ui.board import Board
from tidegate.kube.ports import Kind, KubeFailure
from tidegate.kube.watching import Expired, Watches
from tidegate.printable import visible

_FIRST_S: Final = 1.0
_LONGEST_S: Final = 30.0
"""Between two attempts: a right may be granted, and an API server come back."""

Wait = Callable[[float], bool]
"""Waits for so many seconds; whether it is over."""


def follow(kind: Kind, watches: Watches, board: Board, wait: Wait) -> None:
    """Until ``wait`` says that it is over. A watch that the API server ends goes on from where it was; after a failure
    all is listed anew, less and less often until a watch has told something: whoever may list and not watch would
    have everything listed every other second."""
    pause_s, version = _FIRST_S, ""
    while not wait(0):
        try:
            if not version:
                listing = watches.listed(kind)
                board.replace(kind, listing.bodies)
                version = listing.version
            for change in watches.changes(kind, version):
                pause_s = _FIRST_S
                if change.body is not None:
                    (board.drop if change.is_gone else board.put)(kind, change.body)
                version = change.version or version
                if wait(0):
                    return
            pause_s = _FIRST_S
        except Expired:
            version = ""
        except KubeFailure as failure:
            board.troubled(kind, visible(str(failure)))
            version, pause_s = "", min(2 * pause_s, _LONGEST_S)
        if wait(pause_s):
            return


class Following:
    """The threads. They end with the process: one that reads from the API server can't be interrupted."""

    def __init__(self, kinds: Sequence[Kind], watches: Watches, board: Board) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(
                target=follow, args=(kind, watches, board, self._over.wait), name=f"watch-{kind.plural}", daemon=True
            )
            for kind in kinds
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()

"""How the process of a command ends: politely where it is interrupted, with a code that tells what did not arrive."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, TextIO

from tidegate.cli.screen import Screen

INTERRUPTED: Final = 128 + signal.SIGINT
"""As a shell has it of a program that Ctrl-C has ended."""

READER_GONE: Final = 128 + signal.SIGPIPE
"""As a shell has it of a program that a pipe's end has ended, which ``set -o pipefail`` shows."""

FAILED: Final = 1

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """Meanwhile SIGTERM, and SIGHUP of a terminal that is closed, are as Ctrl-C: what has begun is rolled back, and
    files with secrets are removed. What is ignored, as under ``nohup``, stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may, and only it is interrupted
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # Once: a shell that ends may say it again, in the middle of the rollback.
        for number in ours:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def arrived(screen: Screen, code: int) -> int:
    """``code``, or another one where the command succeeded and its output has not arrived."""
    try:
        screen.out.flush()
        if screen.lost:
            raise screen.lost[0]
    except BrokenPipeError:
        _discard(screen.out)
        return code or READER_GONE
    except OSError as error:
        _discard(screen.out)
        screen.note(f"tidegate: the output could not be written: {error.strerror}")
        return code or FAILED
    return code


def _discard(out: TextIO) -> None:
    """What is left in its buffer: Python would try once more, and end with a code and words of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out.fileno())
    os.close(nowhere)

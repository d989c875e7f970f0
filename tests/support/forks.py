"""Questions asked in a forked process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Final

WITHIN_S: Final = 60.0


def true_in_child(question: Callable[[], bool]) -> bool:
    """What the question says in a child; ``False`` too where it does not come to an end."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if question() else 1
        finally:
            os._exit(code)
    deadline = time.monotonic() + WITHIN_S
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1]) == 0

"""Runs one service and ends it when the process that wanted it is gone, however that one died.

Run as a script, by itself: ``guard.py <record> <parent pid, or 0> <grace in seconds> <command>...``.

A guard of its own, because the usual means have holes: PR_SET_PDEATHSIG fires when the *thread* that forked ends, and a
pipe's end is inherited by every fork of the parent. The guard has one thread, so that the signal is sound for its own
child, and it watches the parent through a pidfd. With parent 0 it watches nobody: the service outlives the command that
started it.

The record, ``<guard pid> <start> <child pid> <start>`` on one line, is written once the child runs; start is when the
process began in clock ticks since boot, by which a pid that was used again is told apart.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is no such process, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def main(arguments: list[str]) -> int:
    """Run the command until it ends, SIGTERM says so, or the parent is gone; returns the command's exit code."""
    record, parent, grace, command = Path(arguments[0]), int(arguments[1]), float(arguments[2]), arguments[3:]
    waiter = select.poll()
    if parent:
        try:
            waiter.register(os.pidfd_open(parent), select.POLLIN)
        except ProcessLookupError:
            return 1
        if os.getppid() != parent:  # it died before we looked, and the pid is someone else's
            return 1
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)

    def noted(_signal: int, _frame: FrameType | None) -> None:
        """The wakeup descriptor carries the news; without a handler the default action would end the guard."""

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, noted)
    waiter.register(told, select.POLLIN)

    libc = ctypes.CDLL(None, use_errno=True)
    guard = os.getpid()

    def die_with_the_guard() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)

    # preexec_fn is sound here: this process has one thread.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_the_guard)  # noqa: PLW1509
    child_fd = os.pidfd_open(child.pid)
    waiter.register(child_fd, select.POLLIN)
    unfinished = record.with_name(record.name + ".new")
    unfinished.write_text(f"{guard} {start_ticks(guard)} {child.pid} {start_ticks(child.pid) or 0}\n")
    unfinished.replace(record)

    ready = {descriptor for descriptor, _ in waiter.poll()}
    if told in ready and child_fd not in ready:
        child.terminate()
        waiter.unregister(told)
        deadline = time.monotonic() + grace
        while child.poll() is None and time.monotonic() < deadline:
            left = deadline - time.monotonic()
            if {descriptor for descriptor, _ in waiter.poll(max(left, 0) * 1000)} - {child_fd}:
                break
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Services end with whoever wanted them, and what a crash left is found and removed."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from devstack.processes import ProcessIdentity, RunFolder, Service, eventually, free_ports, read_record, sweep

DEV = Path(__file__).resolve().parents[2] / "dev"

# Starts a service in a thread that ends at once, says where, and waits to be killed.
PARENT = """
import threading, time
from devstack.processes import RunFolder, Service
run = RunFolder.create("parent-test")
service = Service("sleeper", ["sleep", "1000"], run)
starter = threading.Thread(target=service.start)
starter.start()
starter.join()
print(run.path, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create("test", at=tmp_path / "run")


def test_kill_of_the_parent_leaves_no_process_and_the_next_start_no_folder() -> None:
    # Given a process that has started a service
    environment = {**os.environ, "PYTHONPATH": str(DEV)}
    with subprocess.Popen([sys.executable, "-c", PARENT], env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder = RunFolder(Path(parent.stdout.readline().strip()))
        processes = folder.processes()
        assert len(processes) == 2
        # When it is killed
        parent.send_signal(signal.SIGKILL)
    # Then guard and service end, and whoever comes next removes the folder
    assert eventually(lambda: not any(process.alive for process in processes), 90)
    sweep()
    assert not folder.path.exists()


def test_a_service_outlives_the_thread_that_started_it(run: RunFolder) -> None:
    service = Service("sleeper", ["sleep", "1000"], run)
    starter = threading.Thread(target=service.start)
    starter.start()
    starter.join()
    assert not eventually(lambda: not service.alive, 0.5)
    service.stop()
    assert not service.alive


def test_kill_of_the_guard_ends_the_service(run: RunFolder) -> None:
    service = Service("sleeper", ["sleep", "1000"], run)
    service.start()
    guard, sleeper = read_record(run.record("sleeper"))
    guard.send(signal.SIGKILL)
    assert sleeper.ended_within(5)
    service.stop()


def test_a_service_that_ignores_sigterm_is_killed_after_its_grace(run: RunFolder) -> None:
    command = [
        sys.executable,
        "-c",
        "import signal; signal.signal(15, signal.SIG_IGN); print('on', flush=True); signal.pause()",
    ]
    service = Service("stubborn", command, run, grace=0.3)
    service.start()
    assert eventually(lambda: "on" in service.tail(), 90)
    service.stop()
    assert not service.alive


def test_sweep_leaves_the_runs_of_the_living(run: RunFolder) -> None:
    mine = RunFolder.create("test")
    try:
        sweep()
        assert mine.path.exists()
    finally:
        mine.remove()


def test_a_process_with_the_same_pid_but_another_start_is_not_taken_for_it() -> None:
    own = ProcessIdentity.own()
    assert own.alive
    assert not ProcessIdentity(own.pid, own.start_ticks + 1).alive


def test_ports_lie_outside_the_range_from_which_connections_take_theirs() -> None:
    low, high = (int(part) for part in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert not [port for port in ports if low <= port <= high]

"""Ctrl-C ends a command within seconds, whatever it waits for."""

import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from process_environments import be_in_foreground

COMMAND = """
import queue, subprocess, sys, threading, time
import polars  # which has waits go on after a signal
from drag_ray.cluster import interruption

interruption._GRACE_S = {grace_s}

def wait():
    print(child.pid, flush=True)
    queue.Queue().get()

def swallow():
    is_said = False
    while True:
        try:
            is_said = is_said or print(child.pid, flush=True) is None
            time.sleep(60)
        except KeyboardInterrupt:
            print("Traceback of a library", file=sys.stderr, flush=True)

def leave_a_thread():
    print(child.pid, flush=True)
    threading.Thread(target=time.sleep, args=(60,)).start()
    queue.Queue().get()

def end():
    print(child.pid, flush=True)
    time.sleep(1)
    child.kill()

try:
    with interruption.ending_on_interrupt("stopped"):
        child = subprocess.Popen(["sleep", "61"], start_new_session=True)
        {what}()
except KeyboardInterrupt:
    print("unwound", flush=True)
    sys.exit(130)
"""


def is_running(pid: int) -> bool:
    """True if a process is there a second from now; one that was killed can be there for a moment still."""
    end = time.monotonic() + 1
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            if time.monotonic() > end:
                return True
            time.sleep(0.02)
    return False


@pytest.mark.seconds
@pytest.mark.parametrize(("what", "within_s"), [("wait", 3.0), ("swallow", 4.0), ("leave_a_thread", 4.0)])
@pytest.mark.parametrize("is_alone", [True, False], ids=["to the process", "to its group"])
def test_one_signal_ends_a_command_and_all_that_it_started(what: str, within_s: float, is_alone: bool) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": be_in_foreground}
    process = subprocess.Popen([sys.executable, "-c", COMMAND.format(what=what, grace_s=1)], start_new_session=True, **pipes)
    assert process.stdout is not None
    started = int(process.stdout.readline())
    time.sleep(0.2)
    begun = time.monotonic()
    (os.kill if is_alone else os.killpg)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < within_s
    assert (process.returncode, out, err) == (130, "", "stopped\n")
    assert not is_running(started)


@pytest.mark.seconds
def test_a_second_signal_ends_at_once_what_the_first_did_not() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": be_in_foreground}
    process = subprocess.Popen([sys.executable, "-c", COMMAND.format(what="swallow", grace_s=5)], **pipes)
    assert process.stdout is not None
    process.stdout.readline()
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - begun < 4


@pytest.mark.seconds
def test_a_command_in_the_background_of_a_shell_goes_on() -> None:
    command = COMMAND.format(what="end", grace_s=5)
    # As a shell without job control starts it.
    script = f"trap '' INT; exec {shlex.quote(sys.executable)} -c {shlex.quote(command)}"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_the_signal_that_ends_serving_is_nobody_elses() -> None:
    """Else who watches signals could take it for one that interrupts the command, once the handlers are put back."""
    from drag_ray.cluster.interruption import wait_for_a_signal

    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    earlier = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        wait_for_a_signal()
        assert signal.set_wakeup_fd(earlier) == write_end
        assert select.select([read_end], [], [], 0)[0] == []
    finally:
        signal.set_wakeup_fd(earlier)
        os.close(read_end)
        os.close(write_end)

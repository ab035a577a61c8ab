"""The environments that processes were started with."""

import contextlib
import signal

import psutil

READABLE = {"SPT_NOENV": "1"}
"""For the first process: Ray and vLLM otherwise write the titles of theirs over their environments."""
ENDPOINT_KEY = {"TEACHER_KEY": "a-key-that-stands-in-no-file"}
"""The key of an endpoint, which those who ask it have in their environment."""
REPORTS_OFF = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}


def list_reporting(parent: psutil.Process) -> tuple[set[str], list[str]]:
    """The names of all processes below one, and of those among them whose environment leaves a usage report on."""
    names: set[str] = set()
    reporting: list[str] = []
    for process in parent.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            name, environment = process.name(), process.environ()
            names.add(name)
            reporting += [] if environment.items() >= REPORTS_OFF.items() else [name]
    return names, reporting


def be_in_foreground() -> None:
    """Whoever started the tests, perhaps in the background, where shells have SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

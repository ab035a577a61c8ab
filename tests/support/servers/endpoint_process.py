"""An endpoint that a job serves in processes of its own."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from ports import find_port

ROOT = Path(__file__).parents[3]
RAY_TOKEN = "a-token-for-ray-in-a-test-of-the-endpoint"


@dataclass(frozen=True)
class Endpoint:
    """The served run, seen from outside.

    Attributes:
        dashboard: Ray's, which asks for `RAY_TOKEN`.
        output: of the job, until the endpoint was up.
    """

    url: str
    dashboard: str
    output: str
    ray_dir: Path
    driver: psutil.Process

    def count_engines(self) -> int:
        """Replicas that Ray Serve says take requests at this moment."""
        url, headers = f"{self.dashboard}/api/serve/applications/", {"Authorization": f"Bearer {RAY_TOKEN}"}
        deployments = httpx.get(url, headers=headers, timeout=30).json()["applications"]["drag_ray"]["deployments"]
        return sum(replica["state"] == "RUNNING" for replica in deployments["openai"]["replicas"])


@contextmanager
def serve_run(options: dict[str, Any], kill: bool = False, /, **variables: str) -> Generator[Endpoint]:
    """Serve on a port that is free, until the block ends.

    Args:
        options: of `jobs/serve.py`.
        kill: end all its processes at once: a good end takes Ray Serve most of twenty seconds.
        variables: of its environment.
    """
    port = find_port()
    given = {"serve.max-reply-s": 600, **options, "serve.port": port, "serve.device": "cpu"}.items()  # machines of tests are busy
    arguments = [f"--{name}" if value is True else f"--{name}={value}" for name, value in given]
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as ray_dir:  # a short path: Ray's sockets lie in it
        environment = {**os.environ, "RAY_TMPDIR": ray_dir, "RAY_AUTH_TOKEN": RAY_TOKEN, **variables}
        command = [sys.executable, "jobs/serve.py", *arguments]
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                lines: list[str] = []
                while not lines or lines[-1] != "Ctrl-C ends it\n":
                    lines.append(process.stdout.readline())
                    assert lines[-1], f"it ended early: {lines}"
                dashboard = next(line.split()[2] for line in lines if line.startswith("Ray dashboard"))
                yield Endpoint(f"http://127.0.0.1:{port}", dashboard, "".join(lines), Path(ray_dir), psutil.Process(process.pid))
            finally:
                was_killed = kill or process.poll() is not None
                for one in [*psutil.Process(process.pid).children(recursive=True), process] if kill else []:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=120)
        assert process.returncode == (-signal.SIGKILL if was_killed else 0)

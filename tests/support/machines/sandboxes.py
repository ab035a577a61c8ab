"""A check that this machine can have a sandbox, for tests that attack one."""

import shutil
import subprocess

import pytest

from drag_ray.errors import ConfigError
from drag_ray.tools.sandbox import write_filter


def _find_hindrance() -> str:
    """The reason that there can be no sandbox here, by other means than those of the product; empty if there can."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    tried = subprocess.run([program, "--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "true"], capture_output=True)
    if tried.returncode:
        return f"bubblewrap does not run here: {tried.stderr.decode(errors='replace').strip()}"
    try:
        write_filter()
    except ConfigError as error:
        return str(error)
    return ""


needs_sandbox = pytest.mark.skipif(bool(hindrance := _find_hindrance()), reason=f"python_interpreter is not tested: {hindrance}")

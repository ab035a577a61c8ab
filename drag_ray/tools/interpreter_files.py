"""What of the disk a Python interpreter needs: itself, its standard library and the libraries that these load."""

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from drag_ray.errors import ConfigError
from drag_ray.storage.json_text import parse_json

_LIST_S = 60.0
_LIST = """
import contextlib, ctypes, json, os, sysconfig

folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("DESTSHARED")]
for name in sorted(entry.partition(".")[0] for entry in os.listdir(folders[2])):
    if not name.startswith(("_test", "_xx", "xx", "_tkinter", "_ctypes_test")):
        with contextlib.suppress(ImportError):
            __import__(name)

class Loaded(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]

names = []

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Loaded), ctypes.c_size_t, ctypes.c_void_p)
def note(loaded, size, data):
    names.append(os.fsdecode(loaded.contents.name or b""))
    return 0

ctypes.CDLL(None).dl_iterate_phdr(note, None)
print(json.dumps([folders, [name for name in names if os.path.isabs(name) and os.path.exists(name)]]))
"""
"""Loads each compiled module of the standard library, and prints the folders of that library and the shared libraries that are
loaded then (`dl_iterate_phdr`)."""


@dataclass(frozen=True)
class InterpreterFiles:
    """An interpreter.

    Attributes:
        python: its program, without links.
        shown: files and folders that it needs, at the paths where it looks for them.
        hidden: folders within these that it does not.
    """

    python: str
    shown: tuple[str, ...]
    hidden: tuple[str, ...]


@cache
def find_interpreter() -> InterpreterFiles:
    """The interpreter that runs this, without the packages that are installed for it.

    Raises:
        ConfigError: it does not say what it needs.
    """
    python = str(Path(getattr(sys, "_base_executable", "") or sys.executable).resolve())
    try:
        listed = subprocess.run([python, "-I", "-S", "-c", _LIST], capture_output=True, timeout=_LIST_S, check=True, env={})
        folders, libraries = parse_json(listed.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise ConfigError(f"{python}: what this Python needs of the disk cannot be found ({error}).") from None
    shown: list[str] = [python]
    for path in (*folders, *libraries):
        if not path.startswith(tuple(f"{parent}/" for parent in shown)) and path not in shown:
            shown.append(path)
    packages = [f"{folder}/{name}" for folder in folders for name in ("site-packages", "dist-packages")]
    return InterpreterFiles(python, tuple(shown), tuple(path for path in dict.fromkeys(packages) if Path(path).is_dir()))

"""The requirements of a pinned list: the core, extras and groups of pyproject.toml, which is the one place that names packages.

python runtime_env/requirements.py cpu | uv pip compile - -o runtime_env/cpu.txt        # see `make lock`
"""

import sys
import tomllib
from pathlib import Path

_FOLDER = Path(__file__).parent
_RUN = ("train", "serve", "ocr", "demo")
LISTS: dict[str, tuple[str, ...]] = {
    "cpu": ("core", *_RUN, "cpu"),
    "gpu": ("core", *_RUN, "gpu"),
    "dev": ("dev",),
    "audit": ("audit",),
    "docs": ("docs",),
}
"""Every pinned list with the parts that it holds."""


def read_parts() -> dict[str, list[str]]:
    """The requirements of pyproject.toml by part: `core`, the extras, the groups."""
    project = tomllib.loads((_FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    return {"core": project["project"]["dependencies"], **extras, **groups}


def list_requirements(name: str) -> list[str]:
    """The requirements of a pinned list, each once."""
    parts = read_parts()
    return list(dict.fromkeys(requirement for part in LISTS[name] for requirement in parts[part]))


if __name__ == "__main__":
    print("\n".join(list_requirements(sys.argv[1])))

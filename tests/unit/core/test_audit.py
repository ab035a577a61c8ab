"""`make audit`: known vulnerabilities are told, and so is what could not be checked."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from audit import LISTS, audit

ROOT = Path(__file__).parents[3] / "runtime_env"


def say(text: str, status: int = 0) -> list[str]:
    """A command that writes this, in the place of pip-audit."""
    return [sys.executable, "-c", f"import sys; print({text!r}, file=sys.{'stderr' if status else 'stdout'}); sys.exit({status})"]


def report(**package: Any) -> str:
    return json.dumps({"dependencies": [{"name": "uv", "version": "1.0", "vulns": []}, package]})


@pytest.mark.parametrize(
    ("command", "problems"),
    [
        (say(report(name="x", version="1.0", vulns=[])), []),
        (
            say(report(name="x", version="1.0", vulns=[{"id": "CVE-1", "fix_versions": []}])),
            ["x 1.0: CVE-1, mended in no version"],
        ),
        (say(report(name="x", version="1.0", vulns=[{"id": "A", "fix_versions": ["2", "3"]}])), ["x 1.0: A, mended in 2, 3"]),
        (say(report(name="x", skip_reason="not on PyPI")), ["NOT CHECKED: x: not on PyPI"]),
        (say("first\nno network", 1), ["NOT CHECKED: cpu.txt against https://api.osv.dev (no network)"]),
        (say("[]"), ["NOT CHECKED: cpu.txt against https://api.osv.dev (exit status 0)"]),
    ],
)
def test_what_is_known_and_what_was_not_checked_is_told(command: list[str], problems: list[str]) -> None:
    assert audit(ROOT / "cpu.txt", command) == problems


def test_every_pinned_list_is_looked_up_and_pins_by_hash() -> None:
    assert {"cpu", "gpu", "dev", "audit"} <= set(LISTS)
    for name in LISTS:
        entries = (ROOT / f"{name}.txt").read_text().replace("\\\n", "").splitlines()
        assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []


def test_the_installer_is_pinned_to_one_version() -> None:
    makefile = (ROOT.parent / "Makefile").read_text()
    [version] = re.findall(r"^UV_VERSION := (\d+\.\d+\.\d+)$", makefile, re.MULTILINE)
    for text in (makefile, *_read_clusters()):
        asked = re.findall(r"pip install --quiet (uv\S*)", text)
        assert {name.replace("$(UV_VERSION)", version) for name in asked} == {f"uv=={version}"}


def test_what_a_cluster_installs_besides_the_lists_is_pinned() -> None:
    for text in _read_clusters():
        for command in re.findall(r"uv pip install (.*)", text):
            names = [word for word in command.partition(" #")[0].split() if re.match(r"[a-z]", word)]
            assert "--require-hashes" in command or all("==" in name for name in names), command


def _read_clusters() -> list[str]:
    """Of each way to have a cluster, what is installed on its machines."""
    folder = ROOT / "clusters"
    paths = [ROOT.parent / "cluster.yaml", *sorted(folder.glob("*.yaml")), folder / "kuberay" / "Dockerfile"]
    return [path.read_text() for path in paths]

"""`make audit` and `make sbom`: known vulnerabilities are told, and bills of materials name what is pinned."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requirements
from audit import LISTS, audit
from packaging.requirements import Requirement

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


def test_every_pinned_list_is_looked_up_pins_by_hash_and_gets_a_bill() -> None:
    assert {"cpu", "gpu", "dev", "audit"} <= set(LISTS)
    for name in LISTS:
        entries = (ROOT / f"{name}.txt").read_text().replace("\\\n", "").splitlines()
        assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []
    [names] = re.findall(r"^SBOM_LISTS \?= (.+)$", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert names.split() == list(requirements.LISTS)


def test_the_installer_and_what_a_cluster_installs_besides_the_lists_are_pinned() -> None:
    makefile = (ROOT.parent / "Makefile").read_text()
    [version] = re.findall(r"^UV_VERSION := (\d+\.\d+\.\d+)$", makefile, re.MULTILINE)
    for text in (makefile, *_read_clusters()):
        asked = re.findall(r"pip install --quiet (uv\S*)", text)
        assert {name.replace("$(UV_VERSION)", version) for name in asked} == {f"uv=={version}"}
    for text in _read_clusters():
        for command in re.findall(r"uv pip install (.*)", text):
            names = [word for word in command.partition(" #")[0].split() if re.match(r"[a-z]", word)]
            assert "--require-hashes" in command or all("==" in name for name in names), command


def _read_clusters() -> list[str]:
    """Of each way to have a cluster, what is installed on its machines."""
    folder = ROOT / "clusters"
    paths = [ROOT.parent / "cluster.yaml", *sorted(folder.glob("*.yaml")), folder / "kuberay" / "Dockerfile"]
    return [path.read_text() for path in paths]


PROJECT = Path(__file__).parents[3]


def make_bills(folder: Path, names: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    """`make sbom` for some lists, without the set-up before it."""
    command = ["make", "--old-file=setup", "sbom", f"SBOM_DIR={folder}", f"SBOM_LISTS={' '.join(names)}"]
    return subprocess.run(command, cwd=PROJECT, env=os.environ | environment, capture_output=True, text=True, check=False)


def read_pins(name: str) -> list[tuple[str, str, frozenset[str]]]:
    """(name, version, SHA-256 of its files) of each entry of a pinned list."""
    entries = (PROJECT / "runtime_env" / f"{name}.txt").read_text().replace("\\\n", " ").splitlines()
    pins: list[tuple[str, str, frozenset[str]]] = []
    for entry in entries:
        requirement = Requirement(entry.partition("--hash")[0])
        [version] = [item.version for item in requirement.specifier]
        pins.append((requirement.name, version, frozenset(re.findall(r"--hash=sha256:(\w+)", entry))))
    return sorted(pins)


def list_hashes(component: dict[str, Any]) -> frozenset[str]:
    references = component["externalReferences"]
    return frozenset(digest["content"] for reference in references for digest in reference.get("hashes", ()))


def check_bill(path: Path, name: str) -> None:
    """The generator compares its output with CycloneDX's schema before it writes it; the rest is looked at here."""
    bill = json.loads(path.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["specVersion"] >= "1.6"
    components = bill["components"]
    assert sorted((item["name"], item["version"], list_hashes(item)) for item in components) == read_pins(name)
    # A package URL writes the "!" of an epoch as any other address does.
    assert [item["purl"] for item in components] == [f"pkg:pypi/{item['name']}@{quote(item['version'])}" for item in components]


@pytest.mark.seconds
def test_a_bill_names_what_is_pinned(tmp_path: Path) -> None:
    made = make_bills(tmp_path, ["dev"], UV_OFFLINE="1")
    if "network was disabled" in made.stderr:
        pytest.skip("the generator is not in uv's cache; `make sbom` brings it there")
    assert made.returncode == 0, made.stderr
    check_bill(tmp_path / "sbom-dev.json", "dev")


@pytest.mark.slow
def test_every_pinned_list_gets_a_bill(tmp_path: Path) -> None:
    made = make_bills(tmp_path, list(requirements.LISTS))
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == [str(tmp_path / f"sbom-{name}.json") for name in requirements.LISTS]
    for name in requirements.LISTS:
        check_bill(tmp_path / f"sbom-{name}.json", name)

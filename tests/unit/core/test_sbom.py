"""`make sbom`: each bill of materials is CycloneDX, and names what is pinned, no more and no less."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from packaging.requirements import Requirement
from requirements import LISTS

ROOT = Path(__file__).parents[3]


def make_bills(folder: Path, names: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    """`make sbom` for some lists, without the set-up before it."""
    command = ["make", "--old-file=setup", "sbom", f"SBOM_DIR={folder}", f"SBOM_LISTS={' '.join(names)}"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)


def read_pins(name: str) -> list[tuple[str, str, frozenset[str]]]:
    """(name, version, SHA-256 of its files) of each entry of a pinned list."""
    entries = (ROOT / "runtime_env" / f"{name}.txt").read_text().replace("\\\n", " ").splitlines()
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
    made = make_bills(tmp_path, list(LISTS))
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == [str(tmp_path / f"sbom-{name}.json") for name in LISTS]
    for name in LISTS:
        check_bill(tmp_path / f"sbom-{name}.json", name)


def test_the_lists_that_get_a_bill_by_themselves_are_all_of_them() -> None:
    [names] = re.findall(r"^SBOM_LISTS \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert names.split() == list(LISTS)

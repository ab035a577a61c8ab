"""The command reference of the AWS CLI, as far as it is in installed packages: the commands of each service with their
descriptions (botocore, from which `aws ... help` is made) and the tasks that worked examples solve with them (awscli).

Both packages are under the Apache License 2.0.
"""

import gzip
import html
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drag_ray.errors import ConfigError
from drag_ray.examples.manual_entries import ManualEntry
from drag_ray.storage.json_text import parse_json

_SERVICES = {"s3api": "s3", "deploy": "codedeploy", "configservice": "config"}
"""Where the command line calls a service otherwise than botocore."""
_TAG = re.compile(r"<[^>]+>")
_TITLE = re.compile(r"^\*\*(.+?)\*\*\s*$", re.MULTILINE)
_NUMBER = re.compile(r"^example\s*\d*\s*[:.-]\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Task:
    """What somebody wants to do, in the words of who wrote the example, and the command that does it.

    Attributes:
        text: the example's title.
        product: the service's name.
        command: as in `aws ec2 describe-instances`.
    """

    text: str
    product: str
    command: str


def read_reference() -> tuple[list[ManualEntry], list[Task]]:
    """The commands of all services that have examples, and the tasks of these, in the order of their names.

    Raises:
        ConfigError: awscli or botocore is not installed.
    """
    examples_dir, models_dir = _locate("awscli") / "examples", _locate("botocore") / "data"
    entries: list[ManualEntry] = []
    tasks: list[Task] = []
    for folder in sorted(path for path in examples_dir.iterdir() if path.is_dir()):
        model = _read_model(models_dir / _SERVICES.get(folder.name, folder.name))
        if model is None:
            continue
        commands = {entry.name: entry for entry in _read_commands(folder.name, model)}
        solved = [
            Task(text, model["metadata"]["serviceId"], command)
            for path in sorted(folder.glob("*.rst"))
            if (command := f"aws {folder.name} {path.stem}") in commands
            for text in read_titles(path.read_text(encoding="utf-8", errors="replace"))
        ]
        if solved:
            entries += commands.values()
            tasks += solved
    return entries, tasks


def read_titles(example: str) -> list[str]:
    """The titles of a file of examples: lines that are bold as a whole, without their number and markup."""
    titles = (_NUMBER.sub("", " ".join(title.replace("`", "").split())) for title in _TITLE.findall(example))
    return [title.strip(" .:*") for title in titles]


def _locate(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"corpus.documents 'commands': the package {package} is not installed. "
            "Run `make setup`, or: pip install awscli botocore"
        )
    return Path(spec.origin).parent


def _read_model(folder: Path) -> dict[str, Any] | None:
    """The newest description of a service; None where there is none of that name."""
    versions = sorted(folder.glob("*/service-2.json.gz"))
    return parse_json(gzip.decompress(versions[-1].read_bytes())) if versions else None


def _read_commands(service: str, model: dict[str, Any]) -> Iterator[ManualEntry]:
    """A page a command: its name, its service, what it does, and its options."""
    from botocore import xform_name

    metadata = model["metadata"]
    heading = f"{metadata['serviceId']}: {metadata['serviceFullName']}"
    for operation in sorted(model["operations"].values(), key=lambda operation: operation["name"]):
        shape = operation.get("input", {}).get("shape")
        options = model["shapes"][shape].get("members", {}) if shape else {}
        lines = [_to_text(operation.get("documentation", "")), ""]
        lines += [f"--{xform_name(name, '-')}: {_to_text(member.get('documentation', ''))}" for name, member in options.items()]
        name = f"aws {service} {xform_name(operation['name'], '-')}"
        yield ManualEntry("aws", service, name, heading, "", "\n".join(lines).strip())


def _to_text(documentation: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", documentation)).split())

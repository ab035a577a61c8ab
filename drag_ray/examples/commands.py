"""The embedded corpus of commands: a page is what the AWS CLI's reference says of a command, a question is a task.

The commands of each service come with their descriptions from botocore, from which `aws ... help` is made, the tasks from the
worked examples of awscli; both packages are under the Apache License 2.0. They were written for users and not for a benchmark, by
different people: who writes an example says "To see" or "To change" what the reference describes, gets, lists, updates or
modifies. That gap of words is what a policy can learn here.
"""

import gzip
import html
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drag_ray.errors import ConfigError
from drag_ray.examples.chapters import MAX_EVIDENCE_PAGES, QUESTIONS_NAME, Entry, gather_chapters, take_chapters, write_chapters
from drag_ray.storage import artifacts
from drag_ray.storage.json_text import parse_json

_SERVICES = {"s3api": "s3", "deploy": "codedeploy", "configservice": "config"}
"""Where the command line calls a service otherwise than botocore."""
_TAG = re.compile(r"<[^>]+>")
_TITLE = re.compile(r"^\*\*(.+?)\*\*\s*$", re.MULTILINE)
_NUMBER = re.compile(r"^example\s*\d*\s*[:.-]\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Task:
    """The task of somebody who needs a command, in the words of who wrote the example, and the command that does it."""

    text: str
    product: str
    command: str


def read_reference() -> tuple[list[Entry], list[Task]]:
    """The commands of all services that have examples, and the tasks of these, in the order of their names.

    Raises:
        ConfigError: awscli or botocore is not installed.
    """
    examples_dir, models_dir = _locate("awscli") / "examples", _locate("botocore") / "data"
    entries: list[Entry] = []
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


def _read_commands(service: str, model: dict[str, Any]) -> Iterator[Entry]:
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
        yield Entry(service, name, heading, "\n".join(lines).strip())


def _to_text(documentation: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", documentation)).split())


_MIN_WORDS = 3


def build_commands(out_dir: Path, limit_pages: int = 0) -> None:
    """Write `out_dir/<service>.pdf`, one page a command, and `out_dir/questions.jsonl`.

    With a limit, whole services as far as they fit; a task is asked where all its commands are there.

    Raises:
        ConfigError: the packages that hold the reference are not installed.
    """
    commands, tasks = read_reference()
    if limit_pages:
        commands = take_chapters(commands, limit_pages)
    places = write_chapters(out_dir, {f"{service}.pdf": entries for service, entries in gather_chapters(commands).items()})
    artifacts.write_jsonl(out_dir / QUESTIONS_NAME, _phrase_questions(tasks, places))


def _phrase_questions(tasks: list[Task], places: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """A question is the task with its service, as far as the title does not name the command itself."""
    same_task: dict[tuple[str, str], list[Task]] = defaultdict(list)
    for task in tasks:
        same_task[task.product, task.text.lower()].append(task)
    rows: list[dict[str, Any]] = []
    for same in same_task.values():
        first, commands = same[0], sorted({task.command for task in same})
        names = [command.split()[-1] for command in commands]
        if len(first.text.split()) < _MIN_WORDS or len(commands) > MAX_EVIDENCE_PAGES:
            continue
        if any(name in first.text for name in names if "-" in name) or any(command not in places for command in commands):
            continue
        rows.append(
            {
                "id": f"command-{len(rows)}-{names[0]}",
                "question": f"{first.text} ({first.product})",
                "evidence": [places[command] for command in commands],
                "answers": commands,
                "category": commands[0].split()[1],
            }
        )
    return rows

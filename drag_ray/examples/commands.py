"""The embedded corpus of commands: a page is what the AWS CLI's reference says of a command, a question is a task.

The commands of each service come with their descriptions from botocore, from which `aws ... help` is made, the tasks from the
worked examples of awscli; both packages are under the Apache License 2.0. They were written for users and not for a benchmark, by
different people: who writes an example says "To see" or "To change" what the reference describes, gets, lists, updates or
modifies. That gap of words is what a policy can learn here.
"""

import gzip
import hashlib
import html
import importlib.util
import io
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from drag_ray.errors import ConfigError
from drag_ray.storage import artifacts
from drag_ray.storage.json_text import parse_json

_PAGE_SIZE = (595, 842)
_MARGIN = 36
_FONT = "Courier"
# Courier is 0.6 of its size wide: 96 columns at 9 points fill the width between the margins.
_COLUMNS = 96
_FONT_SIZES = (9.0, 8.0, 7.0, 6.0, 5.0)
_LEADING = 1.15
# The built-in fonts know Latin-1 alone. Tables that polars draws with box characters stay legible as ASCII.
_BOX_HORIZONTAL = dict.fromkeys(map(ord, "─━═╌┄┈╞╡╪"), "-")
_BOX_VERTICAL = dict.fromkeys(map(ord, "│┃║┆┊╎"), "|")
_BOX_CORNERS = dict.fromkeys(range(0x2500, 0x2580), "+")
_TYPOGRAPHY = dict(zip(map(ord, "\u2018\u2019\u201c\u201d\u2013\u2014"), "''\"\"--", strict=True))
_TO_LATIN = _BOX_CORNERS | _BOX_HORIZONTAL | _BOX_VERTICAL | _TYPOGRAPHY


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: `namespace` is what holds it, `signature` a line below its name."""

    namespace: str
    name: str
    signature: str
    body: str


EntryT = TypeVar("EntryT", bound=Entry)


def render_chapter(entries: Sequence[Entry]) -> bytes:
    """One PDF with one page for each entry: its qualified name, signature and body.

    Long entries are set in a smaller font, down to 5 points (about 130 lines); what still does not fit is cut
    at the end of the page.  Lines are broken between words alone and never hyphenated.  Characters outside
    Latin-1 become ASCII look-alikes or `?`.  The bytes depend on the entries alone.
    """
    from reportlab.pdfgen.canvas import Canvas

    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=_PAGE_SIZE, invariant=1, pageCompression=1)
    for entry in entries:
        lines = _lay_out(entry)
        size = next((size for size in _FONT_SIZES if len(lines) <= _count_lines(size)), _FONT_SIZES[-1])
        text = canvas.beginText(_MARGIN, _PAGE_SIZE[1] - _MARGIN - size)
        text.setFont(_FONT, size, leading=size * _LEADING)
        text.textLines(lines[: _count_lines(size)], trim=0)
        canvas.drawText(text)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def _count_lines(size: float) -> int:
    return int((_PAGE_SIZE[1] - 2 * _MARGIN) / (size * _LEADING))


def _lay_out(entry: Entry) -> list[str]:
    """The wrapped lines of a page; indentation and blank lines of the docstring are kept."""
    paragraphs = [entry.name, entry.signature, "", *entry.body.split("\n")]
    lines: list[str] = []
    for paragraph in paragraphs:
        line = paragraph.expandtabs(4).translate(_TO_LATIN).encode("latin-1", "replace").decode("latin-1").rstrip()
        if len(line) <= _COLUMNS:
            lines.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(line, _COLUMNS, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True)
    return lines


QUESTIONS_NAME = "questions.jsonl"
MAX_EVIDENCE_PAGES = 8
"""A question about more entries than this tells none of them apart."""
_MIN_CHAPTER_ENTRIES = 8


def gather_chapters(entries: Sequence[EntryT]) -> dict[str, list[EntryT]]:
    """Entries by namespace; those of a small one join what it is in, as a class is in a module."""
    sizes = Counter(entry.namespace for entry in entries)
    chapters: dict[str, list[EntryT]] = defaultdict(list)
    for entry in entries:
        parent = entry.namespace.rpartition(".")[0]
        chapters[parent if parent and sizes[entry.namespace] < _MIN_CHAPTER_ENTRIES else entry.namespace].append(entry)
    return chapters


def take_chapters(entries: Sequence[EntryT], limit: int) -> list[EntryT]:
    """At most `limit` entries: chapters in an arbitrary but fixed order, those that fit whole, then a part of the next."""
    chapters = gather_chapters(entries)
    order = sorted(chapters, key=lambda chapter: hashlib.sha256(chapter.encode()).digest())
    taken: list[EntryT] = []
    left_out: list[EntryT] = []
    for chapter in order:
        fits = len(taken) + len(chapters[chapter]) <= limit
        (taken if fits else left_out).extend(chapters[chapter])
    taken += left_out[: max(limit - len(taken), 0)]
    return sorted(taken, key=lambda entry: entry.name)


def write_chapters(out_dir: Path, chapters: Mapping[str, Sequence[Entry]]) -> dict[str, dict[str, Any]]:
    """Write each chapter as the PDF of its name, one page an entry; returns the evidence page of each entry by its name."""
    places: dict[str, dict[str, Any]] = {}
    for file, entries in chapters.items():
        artifacts.write_bytes(out_dir / file, render_chapter(entries))
        places |= {entry.name: {"file": file, "page_number": number} for number, entry in enumerate(entries, start=1)}
    return places


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

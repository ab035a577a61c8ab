"""The embedded corpus of commands: a page is what the AWS CLI's reference says of a command, a question is a task.

Both were written for users and not for a benchmark, by different people: who writes an example says "To see" or "To change" what
the reference describes, gets, lists, updates or modifies. That gap of words is what a policy can learn here.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

from drag_ray import artifacts
from drag_ray.corpus.command_reference import Task, read_reference
from drag_ray.corpus.manual_chapters import gather_chapters, take_chapters
from drag_ray.corpus.manual_pdf import render_manual
from drag_ray.corpus.manuals import QUESTIONS_NAME

_MIN_WORDS = 3
# A task of more commands than this tells none of them apart.
_MAX_EVIDENCE_PAGES = 8


def build_commands(out_dir: Path, limit_pages: int = 0) -> None:
    """Write `out_dir/<service>.pdf`, one page a command, and `out_dir/questions.jsonl`.

    With a limit, whole services as far as they fit; a task is asked where all its commands are there.

    Raises:
        ConfigError: the packages that hold the reference are not installed.
    """
    commands, tasks = read_reference()
    if limit_pages:
        commands = take_chapters(commands, limit_pages)
    places: dict[str, tuple[str, int]] = {}
    for service, entries in gather_chapters(commands).items():
        file = f"{service}.pdf"
        artifacts.write_bytes(out_dir / file, render_manual(entries))
        places |= {entry.name: (file, number) for number, entry in enumerate(entries, start=1)}
    artifacts.write_jsonl(out_dir / QUESTIONS_NAME, _phrase_questions(tasks, places))


def _phrase_questions(tasks: list[Task], places: dict[str, tuple[str, int]]) -> list[dict[str, Any]]:
    """A question is the task with its service, as far as the title does not name the command itself."""
    same_task: dict[tuple[str, str], list[Task]] = defaultdict(list)
    for task in tasks:
        same_task[task.product, task.text.lower()].append(task)
    rows: list[dict[str, Any]] = []
    for same in same_task.values():
        first, commands = same[0], sorted({task.command for task in same})
        names = [command.split()[-1] for command in commands]
        if len(first.text.split()) < _MIN_WORDS or len(commands) > _MAX_EVIDENCE_PAGES:
            continue
        if any(name in first.text for name in names if "-" in name) or any(command not in places for command in commands):
            continue
        evidence = [places[command] for command in commands]
        rows.append(
            {
                "id": f"command-{len(rows)}-{names[0]}",
                "question": f"{first.text} ({first.product})",
                "evidence": [{"file": file, "page_number": number} for file, number in evidence],
                "answers": commands,
                "category": commands[0].split()[1],
            }
        )
    return rows

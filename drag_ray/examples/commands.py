"""The embedded corpus of commands: a page is what the AWS CLI's reference says of a command, a question is a task.

Both were written for users and not for a benchmark, by different people: who writes an example says "To see" or "To change" what
the reference describes, gets, lists, updates or modifies. That gap of words is what a policy can learn here.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

from drag_ray.examples.command_reference import Task, read_reference
from drag_ray.examples.manual_chapters import MAX_EVIDENCE_PAGES, QUESTIONS_NAME, gather_chapters, take_chapters, write_chapters
from drag_ray.storage import artifacts

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

"""The embedded corpus of manuals: reference manuals of installed packages, as PDFs, with questions.

Nobody wrote this text for a benchmark.  A page is an entry without the first sentence of its docstring; the
question is that sentence, the evidence every page whose entry is summarised by it.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drag_ray.errors import ConfigError
from drag_ray.examples.manual_chapters import MAX_EVIDENCE_PAGES, QUESTIONS_NAME, gather_chapters, take_chapters, write_chapters
from drag_ray.examples.manual_entries import ManualEntry, read_entries
from drag_ray.examples.manual_groups import compute_groups, normalise
from drag_ray.storage import artifacts

_MIN_BODY_CHARS = 80
_QUESTION_WORDS = range(4, 41)
_REFERENCES = ("see ", "alias ", "refer ", "in-place version", "out-of-place version")


def build_manuals(out_dir: Path, packages: Sequence[str], limit_pages: int = 0) -> None:
    """Write `out_dir/<package>/<module>.pdf`, one page an entry, and `out_dir/questions.jsonl`.

    With a limit, every package gives an even share of the pages, whole modules as far as they fit.

    Raises:
        ConfigError: a package cannot be imported, or has no documented names.
    """
    manual: list[ManualEntry] = []
    for position, package in enumerate(packages):
        entries = read_entries(package)
        if not entries:
            raise ConfigError(
                f"corpus.manual_packages: {package!r} has no public names with docstrings. Take it out of the list."
            )
        # What earlier packages left over goes to the later ones.
        share = -(-(limit_pages - len(manual)) // (len(packages) - position))
        manual += take_chapters(entries, share) if limit_pages else entries
    chapters = gather_chapters(manual).items()
    places = write_chapters(out_dir, {f"{entries[0].package}/{module}.pdf": entries for module, entries in chapters})
    artifacts.write_jsonl(out_dir / QUESTIONS_NAME, _phrase_questions(manual, places))


def _phrase_questions(entries: Sequence[ManualEntry], places: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    groups = compute_groups(entries)
    same_sentence: dict[str, list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        same_sentence[normalise(entry.sentence)].append(index)
    rows: list[dict[str, Any]] = []
    for indices in same_sentence.values():
        if not any(_is_askable(entries[index]) for index in indices) or len(indices) > MAX_EVIDENCE_PAGES:
            continue
        first = entries[indices[0]]
        rows.append(
            {
                "id": f"manual-{first.name}",
                "question": first.sentence,
                "evidence": [places[entries[index].name] for index in indices],
                "answers": [entries[index].name for index in indices],
                "category": first.package,
                "group": groups[indices[0]],
            }
        )
    return rows


def _is_askable(entry: ManualEntry) -> bool:
    refers = entry.sentence.lower().startswith(_REFERENCES)
    return len(entry.body) >= _MIN_BODY_CHARS and len(entry.sentence.split()) in _QUESTION_WORDS and not refers

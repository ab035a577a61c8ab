"""The embedded corpus: reference manuals of installed packages, as PDFs, with questions.

Nobody wrote this text for a benchmark.  A page is an entry without the first sentence of its docstring; the
question is that sentence, the evidence every page whose entry is summarised by it.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drag_ray import artifacts
from drag_ray.corpus.manual_chapters import gather_chapters, take_chapters
from drag_ray.corpus.manual_entries import ManualEntry, read_entries
from drag_ray.corpus.manual_groups import compute_groups, normalise
from drag_ray.corpus.manual_pdf import render_manual
from drag_ray.errors import ConfigError

QUESTIONS_NAME = "questions.jsonl"
_MIN_BODY_CHARS = 80
_QUESTION_WORDS = range(4, 41)
# A sentence that summarises more entries than this tells none of them apart.
_MAX_EVIDENCE_PAGES = 8
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
    places: dict[str, tuple[str, int]] = {}
    for module, entries in gather_chapters(manual).items():
        file = f"{entries[0].package}/{module}.pdf"
        artifacts.write_bytes(out_dir / file, render_manual(entries))
        places |= {entry.name: (file, number) for number, entry in enumerate(entries, start=1)}
    artifacts.write_jsonl(out_dir / QUESTIONS_NAME, _phrase_questions(manual, places))


def _phrase_questions(entries: Sequence[ManualEntry], places: dict[str, tuple[str, int]]) -> list[dict[str, Any]]:
    groups = compute_groups(entries)
    same_sentence: dict[str, list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        same_sentence[normalise(entry.sentence)].append(index)
    rows: list[dict[str, Any]] = []
    for indices in same_sentence.values():
        if not any(_is_askable(entries[index]) for index in indices) or len(indices) > _MAX_EVIDENCE_PAGES:
            continue
        first = entries[indices[0]]
        evidence = [places[entries[index].name] for index in indices]
        rows.append(
            {
                "id": f"manual-{first.name}",
                "question": first.sentence,
                "evidence": [{"file": file, "page_number": number} for file, number in evidence],
                "answers": [entries[index].name for index in indices],
                "category": first.package,
                "group": groups[indices[0]],
            }
        )
    return rows


def _is_askable(entry: ManualEntry) -> bool:
    refers = entry.sentence.lower().startswith(_REFERENCES)
    return len(entry.body) >= _MIN_BODY_CHARS and len(entry.sentence.split()) in _QUESTION_WORDS and not refers

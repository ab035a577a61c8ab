"""A look at a file of training rows: how many, how long, how often the same, and what of a sample is learned."""

import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drag_ray.corpus.problems import Problem, name_first, read_one
from drag_ray.corpus.records import read_records
from drag_ray.corpus.text import to_printable
from drag_ray.engine.conversation import read_conversation
from drag_ray.engine.generate import join_text
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.models.tokens import IGNORED_LABEL, LabelledTokens, Mask, tokenize_conversation
from drag_ray.errors import DataError
from drag_ray.messages import to_displayable
from drag_ray.storage.artifacts import compute_fingerprint, write_text
from drag_ray.tools.search import ANSWER
from drag_ray.transcripts.webpage import render_page

_NUM_BINS = 12
_LEARNED_STYLE, _PLAIN_STYLE = "\033[1;32m", "\033[0m"

Record = dict[str, Any]
"""A row as it was read from a file: anything may be missing from it, or of another type."""


@dataclass(frozen=True)
class Piece:
    """Text of consecutive tokens that are all learned, or all not."""

    text: str
    is_learned: bool


@dataclass(frozen=True)
class Sample:
    """One conversation as a trainer sees it. `label` says which row it is of, and which side of a preference pair."""

    label: str
    pieces: list[Piece]
    num_tokens: int
    num_learned: int
    values: dict[str, str]


@dataclass(frozen=True)
class Inspection:
    """The inspection of a file of rows.

    Attributes:
        name: the file, as it can be printed.
        num_rows: of the whole file.
        num_duplicates: rows that say the same as an earlier one, wherever they came from.
        num_tokenized: rows, from the first on, that lengths are known of.
        bins: (first length, last length, rows) of equal width, in tokens.
        num_learned: learned tokens of those rows, and `num_tokens` all of theirs.
        problems: why a row cannot be read or trained on, and where it is.
    """

    name: str
    num_rows: int
    num_duplicates: int
    num_tokenized: int
    bins: list[tuple[int, int, int]]
    num_tokens: int
    num_learned: int
    samples: list[Sample]
    problems: list[Problem]

    def __str__(self) -> str:
        return format_inspection(self, use_color=False)


def load_tokenizer(model: str) -> Any:
    """The tokenizer, with its chat template, of a model as `engine.model` names it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(resolve_model(model))


def inspect_file(path: Path, tokenizer: Any, mask: Mask, num_samples: int, max_tokenized: int) -> Inspection:
    """Read a `.jsonl`, `.jsonl.gz` or `.parquet` of training rows of any format. Raises DataError where the file is missing,
    something else, or none of its rows can be read or trained on.

    Args:
        tokenizer: a fast tokenizer with a chat template.
        mask: what of a learned reply counts, as in finetune.sft.mask.
        num_samples: rows, spread evenly over those that are tokenized, that are shown.
        max_tokenized: rows that are tokenized; the others are only counted.
    """
    seen: Counter[str] = Counter()
    samples: list[Sample] = []
    problems: list[Problem] = []
    num_rows = 0
    for num_rows, (place, outcome) in enumerate(read_records(path, _fingerprint_row), start=1):
        if isinstance(outcome, Problem):
            problems.append(outcome)
            continue
        fingerprint, row = outcome
        seen[fingerprint] += 1
        if num_rows <= max_tokenized:
            found = read_one("broken_record", place, build_samples, row, num_rows, tokenizer, mask)
            problems.append(found) if isinstance(found, Problem) else samples.extend(found)
    if not seen:
        raise DataError(f"{path}: no rows that can be read. Run: python jobs/format.py.{name_first(problems)}")
    if problems and not samples:
        raise DataError(f"{path}: none of its rows can be trained on. Name a file of the format stage.{name_first(problems)}")
    step = max(1, len(samples) // max(1, num_samples))
    return Inspection(
        name=to_printable(str(path)),
        num_rows=num_rows,
        num_duplicates=seen.total() - len(seen),
        num_tokenized=min(num_rows, max_tokenized),
        bins=_cut_bins([sample.num_tokens for sample in samples]),
        num_tokens=sum(sample.num_tokens for sample in samples),
        num_learned=sum(sample.num_learned for sample in samples),
        samples=samples[::step][:num_samples],
        problems=problems,
    )


def _fingerprint_row(row: Record) -> tuple[str, Record]:
    """A row with what stands for its content."""
    return compute_fingerprint(*(row.get(name) for name in ("prompt", "completion", "messages", "chosen", "rejected"))), row


def build_samples(row: Record, number: int, tokenizer: Any, mask: Mask) -> list[Sample]:
    """The conversations of a row: one, or both sides of a preference pair. Raises DataError where nothing of the row can be
    learned."""
    sides = [side for side in ("chosen", "rejected") if side in row] or ["completion"]
    values = {
        to_printable(name): to_printable(str(value))
        for name, value in row.items()
        if not isinstance(value, list | dict) and name != "tools"
    }
    samples = []
    for side in sides:
        conversation = {**row, "completion": row[side]} if side in row else row
        tokenized = tokenize_conversation(read_conversation(_flatten(conversation)), tokenizer, mask, ANSWER.name)
        label = f"row {number}" if side == "completion" else f"row {number}, {side}"
        num_learned = sum(token != IGNORED_LABEL for token in tokenized["labels"])
        samples.append(Sample(label, _cut_pieces(tokenized, tokenizer), len(tokenized["input_ids"]), num_learned, values))
    return samples


def _flatten(row: Record) -> Record:
    """A row whose contents are texts, for tokenizers that know nothing of images."""
    texts = {
        name: [{**message, "content": join_text(message)} for message in row[name]]
        for name in ("prompt", "completion", "messages")
        if name in row
    }
    return {**row, **texts, "images": []}


def format_inspection(inspection: Inspection, use_color: bool) -> str:
    """The inspection as text; what is learned is green, or between >> and << where colours are off."""
    begin, end = (_LEARNED_STYLE, _PLAIN_STYLE) if use_color else (">>", "<<")
    lines = [*_list_figures(inspection), "", "tokens a row"]
    most = max((count for *_, count in inspection.bins), default=1)
    lines += [f"{first:>7} - {last:<7}{count:>7} {'#' * round(50 * count / most)}" for first, last, count in inspection.bins]
    lines = [to_displayable(line) for line in lines]
    for sample in inspection.samples:
        values = to_displayable(", ".join(f"{name} {value}" for name, value in sample.values.items()))
        pieces = [(to_displayable(piece.text), piece.is_learned) for piece in sample.pieces]
        shown = "".join(f"{begin}{text}{end}" if is_learned else text for text, is_learned in pieces)
        lines += ["", f"--- {sample.label}: {sample.num_learned} of {sample.num_tokens} tokens learned ({values})", shown]
    return "\n".join(lines)


def write_page(inspection: Inspection, path: Path) -> None:
    """Write the inspection as an HTML page that needs nothing else."""
    most = max((count for *_, count in inspection.bins), default=1)
    page = render_page(
        "format/inspection.html.j2",
        inspection=inspection,
        figures=_list_figures(inspection),
        most=most,
        name=Path(inspection.name).name,
    )
    write_text(path, page)


def _list_figures(inspection: Inspection) -> list[str]:
    share = inspection.num_learned / inspection.num_tokens if inspection.num_tokens else 0.0
    of_all = "" if inspection.num_tokenized == inspection.num_rows else f" (of the first {inspection.num_tokenized:,} rows)"
    figures = [
        f"{inspection.name}: {inspection.num_rows:,} rows, {inspection.num_duplicates:,} duplicates",
        f"{inspection.num_tokens:,} tokens, {inspection.num_learned:,} learned ({share:.1%}){of_all}",
    ]
    if inspection.problems:
        first = inspection.problems[0]
        figures.append(f"{len(inspection.problems):,} rows cannot be trained on; the first: {first.place}: {first.reason}")
    return figures


def _cut_pieces(tokenized: LabelledTokens, tokenizer: Any) -> list[Piece]:
    pairs = zip(tokenized["input_ids"], tokenized["labels"], strict=True)
    runs = itertools.groupby(pairs, key=lambda pair: pair[1] != IGNORED_LABEL)
    return [Piece(tokenizer.decode([token for token, _ in run]), is_learned) for is_learned, run in runs]


def _cut_bins(lengths: list[int]) -> list[tuple[int, int, int]]:
    if not lengths:
        return []
    low = min(lengths)
    width = (max(lengths) - low) // _NUM_BINS + 1
    counts = Counter((length - low) // width for length in lengths)
    return [(low + width * place, low + width * (place + 1) - 1, counts[place]) for place in range(max(counts) + 1)]

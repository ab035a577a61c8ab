"""Worth of the parts of a mix of written questions, its kinds and styles: what a ranker learns with and without each, told by
real questions.

The ranker is the model of `features`. It learns in seconds on a CPU, so that each mix is drawn and learned several times; two
trainings of a small cross-encoder on the same questions can be further apart than any parts are (docs/documents.md).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drag_ray import schemas
from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.baselines import feature_training
from drag_ray.baselines.page_features import FeatureScorer
from drag_ray.corpus.near_duplicates import read_near_duplicates
from drag_ray.corpus.questions import QUESTIONS_NAME, check_evidence, draw_questions, is_measurable, read_questions, read_split
from drag_ray.corpus.split import find_overlaps
from drag_ray.corpus.verdicts import keep_reviewed
from drag_ray.errors import DataError
from drag_ray.evaluate.question_result import compute_reciprocal_rank
from drag_ray.evaluate.statistics.intervals import (
    ClusteredQuestion,
    Resampling,
    compute_sign_flip_p_values,
    holm,
    number_clusters,
)
from drag_ray.questions.config import ROWS_NAME
from drag_ray.questions.drafts import read_rows
from drag_ray.search.page_reranker import put_in_order
from drag_ray.search.searcher import Searcher
from drag_ray.storage.artifacts import require_manifest
from drag_ray.types import Hits, Question

_CATEGORY, _LEVEL = "written_", 0.05
_DEPTH, _NUM_DRAWS, _NUM_RESAMPLES, _MAX_ASKED, _LEAST_ASKED = 20, 5, 10_000, 600, 30

Part = tuple[Literal["kinds", "styles"], str]
"""A kind or a style, with the option of `questions` that names it."""


@dataclass(frozen=True, slots=True)
class PartWorth:
    """The effect of leaving out a kind or a style.

    Attributes:
        num_written: questions of the part that could be learned from.
        mrr: without it.
        gain: of leaving it out, with its interval over documents; None with one document.
        p_value: corrected for the number of parts (Holm).
        is_worse: the mix is significantly better without it: the p-value is below 0.05, and each draw gains.
    """

    part: Part
    num_written: int
    mrr: float
    gain: float
    interval: tuple[float, float] | None
    p_value: float
    is_worse: bool


@dataclass(frozen=True, slots=True)
class MixWorth:
    """The parts of a mix, with the MRR of the whole of it and of the search before anything is learned; and those of which no
    question could be learned from."""

    num_asked: int
    num_learned: int
    untrained_mrr: float
    mrr: float
    parts: tuple[PartWorth, ...]
    unmeasured: tuple[Part, ...] = ()


def read_real(run_dir: Path, path: Path | None = None) -> list[Question]:
    """Real questions to choose a mix by: those of a file, but for its test questions, or, without one, the training questions of
    the index. Where it has none, test questions that a person has kept (`drag-ray review`), which an evaluation then flatters.

    Raises:
        DataError: there are too few, or the file cannot be read.
        ArtifactError: the index or its written questions have not finished.
        ConfigError: there is no file of verdicts.
    """
    for stage in ("index", "questions"):
        require_manifest(run_dir / stage, f"python jobs/{stage}.py")
    index_dir = run_dir / "index"
    if path:
        pages = schemas.read_table(index_dir / "pages.parquet", schemas.PAGES, ["file", "page_number"])
        keys = set(zip(pages["file"].to_pylist(), pages["page_number"].to_pylist(), strict=True))
        asked = [one for one in check_evidence(read_questions(path)[0], keys)[0] if one.split != "test"]
    elif schemas.read_table(index_dir / QUESTIONS_NAME, schemas.QUESTIONS, ["id"]).num_rows:
        asked = read_split(index_dir, "train")
    else:
        asked = keep_reviewed(read_split(index_dir, "test", run_dir / "questions"), run_dir / "review" / "verdicts.jsonl")
    asked = draw_questions(list(filter(is_measurable, asked)), _MAX_ASKED, 0)
    if len(asked) < _LEAST_ASKED:
        raise DataError(
            f"{path or run_dir}: {len(asked)} real questions with evidence, {_LEAST_ASKED} are needed to tell a mix apart."
        )
    return asked


def measure_mix(run_dir: Path, asked: Sequence[Question]) -> MixWorth:
    """Compare equally many written questions of all kinds and styles, and of all but one, over documents that no real question
    is about. Raises DataError: too few questions are left to learn from, or all are of one kind and style."""
    folder = run_dir / "questions"
    written, rows = read_questions(folder / ROWS_NAME)[0], read_rows(folder)
    near = read_near_duplicates(run_dir / "index", [*asked, *written])
    overlaps = find_overlaps(written, asked, "document", near)
    parts = {one.id: list_parts(one, rows[one.id].get("style", "")) for one in written if one.category.startswith(_CATEGORY)}
    left = [one for one in written if one.id not in overlaps and one.id in parts]
    worth = compare_parts(left, parts, asked, Searcher(run_dir / "index" / "search_index"))
    learned = {part for one in left for part in parts[one.id]}
    return replace(worth, unmeasured=tuple(sorted({part for of in parts.values() for part in of} - learned)))


def list_parts(question: Question, style: str = "") -> list[Part]:
    """The parts of a mix that a written question is of: its kind, and its style if it has one."""
    return [("kinds", question.category.removeprefix(_CATEGORY)), *([("styles", style)] if style else [])]


def compare_parts(
    written: Sequence[Question], parts: Mapping[str, Sequence[Part]], asked: Sequence[Question], searcher: Searcher
) -> MixWorth:
    """As `measure_mix`, of written questions that share nothing with those that are asked, by the parts of each."""
    counts = Counter(part for question in written for part in parts[question.id])
    mixes = {part: [one for one in written if part not in parts[one.id]] for part in counts}
    mixes = {part: mix for part, mix in mixes.items() if mix}  # what all questions are of cannot be left out
    num_learned = 4 * min(map(len, mixes.values()), default=0) // 5  # draws of the smallest mix are to differ too
    if not num_learned:
        raise DataError(
            f"{len(written)} written questions of {len(counts)} kinds and styles over documents that no real question is about: "
            "nothing to compare. Have more written (questions.limit, questions.kinds), or ask real ones about fewer documents."
        )
    found = [searcher.search(question.question, _DEPTH) for question in asked]
    whole, *others = (_learn(mix, num_learned, asked, found, searcher) for mix in (written, *mixes.values()))
    asked_of = [ClusteredQuestion(one.id, one.evidence[0].file, one.group) for one in asked]
    resampling = Resampling(number_clusters(asked_of), 1 - _LEVEL, _NUM_RESAMPLES)
    values = np.stack([other.mean(axis=0) for other in others], axis=1)
    given = np.broadcast_to(whole.mean(axis=0)[:, None], values.shape)
    drawn = resampling.draw_means(values - given)
    p_values = holm(compute_sign_flip_p_values(given, values, resampling.clusters, _NUM_RESAMPLES, 0).tolist())
    worths = [
        PartWorth(
            part,
            counts[part],
            float(other.mean()),
            float((other - whole).mean()),
            resampling.compute_interval(drawn[:, place]),
            p_values[place],
            p_values[place] < _LEVEL and bool((other.mean(axis=1) > whole.mean(axis=1)).all()),
        )
        for place, (part, other) in enumerate(zip(mixes, others, strict=True))
    ]
    untrained = np.mean([_reciprocal_rank(one, hits) for one, hits in zip(asked, found, strict=True)])
    return MixWorth(len(asked), num_learned, float(untrained), float(whole.mean()), tuple(worths))


def _learn(
    mix: Sequence[Question], number: int, asked: Sequence[Question], found: Sequence[Hits], searcher: Searcher
) -> NDArray[np.float64]:
    """The reciprocal ranks in the order of `features` that learn from draws of a mix. Shape (draws, questions)."""
    values: list[list[float]] = []
    for seed in range(_NUM_DRAWS):
        model = feature_training.fit(draw_questions(mix, number, seed), searcher, _DEPTH, searcher, seed)
        if not model.weights:
            raise DataError(f"{number} written questions of a mix teach nothing: too few find their page. Have more written.")
        score = FeatureScorer(model, searcher)
        ordered = (
            put_in_order(hits, {}, _DEPTH, 0.0, score(question.question, hits))
            for question, hits in zip(asked, found, strict=True)
        )
        values.append([_reciprocal_rank(question, hits) for question, hits in zip(asked, ordered, strict=True)])
    return np.array(values)


def _reciprocal_rank(question: Question, hits: Hits) -> float:
    return compute_reciprocal_rank(compute_evidence_rank(tuple(hits), question.evidence))


def format_worth(worth: MixWorth) -> str:
    """A table of the kinds and styles, and the option of the mix without the one that is significantly worst, if one is."""
    width = max(12, *(len(one.part[1]) + 1 for one in worth.parts))
    rows = [
        f"{worth.num_asked} real questions; `features` learn from {worth.num_learned} written ones, {_NUM_DRAWS} draws of a mix",
        f"MRR {worth.mrr:.3f} with all of them, {worth.untrained_mrr:.3f} of the search alone",
        f"{'left out':<{width}}{'written':>9}{'MRR':>8}{'gain':>9}  {'95 % interval':<20}{'p (Holm)':>8}",
    ]
    for one in worth.parts:
        interval = "[{:+.3f}, {:+.3f}]".format(*one.interval) if one.interval else ""
        numbers = f"{one.num_written:>9}{one.mrr:>8.3f}{one.gain:>+9.3f}  {interval:<20}{one.p_value:>8.3f}"
        rows.append(f"{one.part[1]:<{width}}{numbers}")
    if worth.unmeasured:
        names = ", ".join(name for _, name in worth.unmeasured)
        rows.append(f"Not measured, all their questions are about documents of real questions: {names}")
    worst = max((one for one in worth.parts if one.is_worse), key=lambda one: one.gain, default=None)
    if worst is None:
        return "\n".join([*rows, "The mix is not significantly better without any of them: keep it."])
    option, name = worst.part
    kept = [part[1] for part in (*(one.part for one in worth.parts), *worth.unmeasured) if part[0] == option and part[1] != name]
    return "\n".join([*rows, f"Better without {name}: --questions.{option} {quote(json.dumps(kept, ensure_ascii=False))}"])

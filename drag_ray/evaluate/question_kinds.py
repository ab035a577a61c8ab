"""Worth of the kinds of written questions: what a ranker learns with and without each, told by real questions.

The ranker is the model of `features`. It learns in seconds on a CPU, so that each mix is drawn and learned several times; two
trainings of a small cross-encoder on the same questions can be further apart than any kinds are (docs/documents.md).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
from drag_ray.search.page_reranker import put_in_order
from drag_ray.search.searcher import Searcher
from drag_ray.types import Hits, Question

_CATEGORY = "written_"
_DEPTH, _NUM_DRAWS, _MAX_ASKED, _LEAST_ASKED = 20, 5, 600, 30
_NUM_RESAMPLES, _LEVEL = 10_000, 0.05


@dataclass(frozen=True, slots=True)
class KindWorth:
    """The effect of leaving out a kind.

    Attributes:
        num_written: questions of the kind that could be learned from.
        mrr: without it.
        gain: of leaving it out, with its interval over documents; None with one document.
        p_value: corrected for the number of kinds (Holm).
        is_worse: the mix is significantly better without it: the p-value is below 0.05, and each draw gains.
    """

    kind: str
    num_written: int
    mrr: float
    gain: float
    interval: tuple[float, float] | None
    p_value: float
    is_worse: bool


@dataclass(frozen=True, slots=True)
class KindsWorth:
    """The kinds of a mix, with the MRR of the whole of it and of the search before anything is learned; and those of which no
    question could be learned from."""

    num_asked: int
    num_learned: int
    untrained_mrr: float
    mrr: float
    kinds: tuple[KindWorth, ...]
    unmeasured: tuple[str, ...] = ()


def read_real(run_dir: Path, path: Path | None = None) -> list[Question]:
    """Real questions to choose a mix by: those of a file, but for its test questions, or, without one, the training questions of
    the index. Where it has none, test questions that a person has kept (`drag-ray review`), which an evaluation then flatters.

    Raises:
        DataError: there are too few, or the file cannot be read.
        ConfigError: there is no file of verdicts.
    """
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
            f"{path or run_dir}: {len(asked)} real questions with evidence, {_LEAST_ASKED} are needed to tell kinds apart."
        )
    return asked


def measure_kinds(run_dir: Path, asked: Sequence[Question]) -> KindsWorth:
    """Compare equally many written questions of all kinds, and of all but one, over documents that no real question is about.
    Raises DataError: too few questions are left to learn from, or of a single kind."""
    written = read_questions(run_dir / "questions" / "questions.jsonl")[0]
    near = read_near_duplicates(run_dir / "index", [*asked, *written])
    overlaps = find_overlaps(written, asked, "document", near)
    left = [question for question in written if question.id not in overlaps and question.category.startswith(_CATEGORY)]
    worth = compare_kinds(left, asked, Searcher(run_dir / "index" / "search_index"))
    kinds = {one.category.removeprefix(_CATEGORY) for one in written if one.category.startswith(_CATEGORY)}
    return replace(worth, unmeasured=tuple(sorted(kinds - {one.kind for one in worth.kinds})))


def compare_kinds(written: Sequence[Question], asked: Sequence[Question], searcher: Searcher) -> KindsWorth:
    """As `measure_kinds`, of written questions that share nothing with those that are asked."""
    counts = Counter(question.category for question in written)
    mixes = [list(written), *([one for one in written if one.category != kind] for kind in counts)]
    num_learned = 4 * min(map(len, mixes)) // 5 if len(counts) > 1 else 0  # draws of the smallest mix are to differ too
    if not num_learned:
        raise DataError(
            f"{len(written)} written questions of {len(counts)} kinds over documents that no real question is about: nothing to "
            "compare. Have more written (questions.limit, questions.kinds), or ask real questions about fewer documents."
        )
    found = [searcher.search(question.question, _DEPTH) for question in asked]
    whole, *others = (_learn(mix, num_learned, asked, found, searcher) for mix in mixes)
    asked_of = [ClusteredQuestion(one.id, one.evidence[0].file, one.group) for one in asked]
    resampling = Resampling(number_clusters(asked_of), 1 - _LEVEL, _NUM_RESAMPLES)
    values = np.stack([other.mean(axis=0) for other in others], axis=1)
    given = np.broadcast_to(whole.mean(axis=0)[:, None], values.shape)
    drawn = resampling.draw_means(values - given)
    p_values = holm(compute_sign_flip_p_values(given, values, resampling.clusters, _NUM_RESAMPLES, 0).tolist())
    kinds = [
        KindWorth(
            category.removeprefix(_CATEGORY),
            number,
            float(other.mean()),
            float((other - whole).mean()),
            resampling.compute_interval(drawn[:, place]),
            p_values[place],
            p_values[place] < _LEVEL and bool((other.mean(axis=1) > whole.mean(axis=1)).all()),
        )
        for place, ((category, number), other) in enumerate(zip(counts.items(), others, strict=True))
    ]
    untrained = np.mean([_reciprocal_rank(one, hits) for one, hits in zip(asked, found, strict=True)])
    return KindsWorth(len(asked), num_learned, float(untrained), float(whole.mean()), tuple(kinds))


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


def format_worth(worth: KindsWorth) -> str:
    """A table of the kinds, and the option of the mix without the one that is significantly worst, if one is."""
    rows = [
        f"{worth.num_asked} real questions; `features` learn from {worth.num_learned} written ones, {_NUM_DRAWS} draws of a mix",
        f"MRR {worth.mrr:.3f} with all kinds, {worth.untrained_mrr:.3f} of the search alone",
        f"{'left out':<12}{'written':>9}{'MRR':>8}{'gain':>9}  {'95 % interval':<20}{'p (Holm)':>8}",
    ]
    for one in worth.kinds:
        interval = "[{:+.3f}, {:+.3f}]".format(*one.interval) if one.interval else ""
        rows.append(f"{one.kind:<12}{one.num_written:>9}{one.mrr:>8.3f}{one.gain:>+9.3f}  {interval:<20}{one.p_value:>8.3f}")
    if worth.unmeasured:
        rows.append(f"Not measured, all their questions are about documents of real questions: {', '.join(worth.unmeasured)}")
    worst = max((one for one in worth.kinds if one.is_worse), key=lambda one: one.gain, default=None)
    if worst is None:
        return "\n".join([*rows, "The mix is not significantly better without any kind: keep it."])
    mix = ", ".join(f'"{kind}"' for kind in (*(one.kind for one in worth.kinds if one is not worst), *worth.unmeasured))
    return "\n".join([*rows, f"Better without {worst.kind}: --questions.kinds '[{mix}]'"])

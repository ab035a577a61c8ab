"""Feedback of simulated users on real questions: what is learned of it, and what a trial of a challenger decides by it.

python benchmarks/bench_feedback.py [--data-dir ../shared/data] [--sets medquad ohr_bench]

Users look at a page by its rank (1 / rank) and open what they look at with the chance .9 if it is evidence, else .1; one in ten
that is opened is marked right, or wrong where it is none. `noise`: three in ten do all of that whatever is on the page.
`hostile`: one client more, who knows the evidence, asks every second question and says right of all other pages, wrong of
evidence; in a trial it knows the teams, searches a thousand times, and praises the worse side.

Learned: precision and recall of the evidence that `drag_ray.feedback.learn` makes (recall of questions whose evidence was shown),
and the MRR of `features`, trained on it, on questions over other documents, beside that of the question alone and of `features`
trained on the given evidence of the same questions. Trials: `better` has `features` of the given evidence as the challenger of
the question, `worse` the other way round, `equal` for each question either as either, by a coin. A voice is a user with one
question; votes are the voices that prefer a side, until the decision.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

from public_sets import DATA_DIR, build_searcher, read_page_set, require
from record import write_result

from drag_ray.baselines import feature_training
from drag_ray.baselines.page_features import FeatureSearcher
from drag_ray.feedback.config import LearnConfig, TrialConfig
from drag_ray.feedback.events import Action, Event, Mark, ShownSearch, TrialPart
from drag_ray.feedback.learn import learn
from drag_ray.feedback.ledger import Contender, Trial
from drag_ray.feedback.trial import CLOSED_AFTER_S, measure_trial
from drag_ray.search.searcher import Searcher
from drag_ray.serve.search.trials import interleave
from drag_ray.types import Evidence, Question

DEPTH, FEATURES_DEPTH = 10, 30
NUM_LEARNED, NUM_ASKED, VOICES_A_QUESTION, NUM_CLIENTS = 500, 300, 6, 400
NUM_TRIALS, BLOCKS = 30, (250, 500, 1000, 2000, 4000)
EVIDENT, OTHER, MARKED = 0.9, 0.1, 0.1
NOISE = 0.3
CONDITIONS: Mapping[str, tuple[float, bool]] = {
    "honest": (0.0, False),
    "noise": (NOISE, False),
    "hostile": (0.0, True),
}
TERMS = TrialConfig()
KINDS = ("better", "worse", "equal")
Rankings = dict[str, tuple[Evidence, ...]]
Begin = Callable[[str], tuple[Question, ShownSearch]]
NUMBERS = count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR)
    parser.add_argument("--sets", nargs="+", default=["medquad", "ohr_bench"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options = parser.parse_args()
    results = {name: run_set(require(options.data_dir / name), options.seeds) for name in options.sets}
    write_result("feedback", {"seeds": options.seeds, "sets": results})


def run_set(folder: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """The tables of a set."""
    with tempfile.TemporaryDirectory() as scratch:
        pages = read_page_set(folder)
        searcher = build_searcher(pages.pages, Path(scratch))
        of_seeds = [run_seed(pages.questions, searcher, seed) for seed in seeds]
    summary = {key: summarise([row[key] for row in of_seeds]) for key in of_seeds[0]}
    for key, row in summary.items():
        print(folder.name, key, row, flush=True)
    return summary


def summarise(rows: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    """Mean, least and most of each figure over the seeds."""
    found: dict[str, Any] = {}
    for name in rows[0]:
        values = [row[name] for row in rows if row[name] is not None]
        given = [value for value in values if value is not None]
        found[name] = [round(value, 4) for value in (fmean(given), min(given), max(given))] if given else None
    return found


def run_seed(questions: Sequence[Question], searcher: Searcher, seed: int) -> dict[str, dict[str, float | None]]:
    """All conditions with the questions that a seed draws."""
    random = Random(seed)
    learned, asked = draw_questions(questions, random)
    given = feature_training.fit(learned, searcher, FEATURES_DEPTH, searcher, seed)
    measured = partial(rank_all, asked, searcher)
    rankings = {"question": measured(None), "given": measured(given)}
    rows: dict[str, dict[str, float | None]] = {
        f"MRR of {name}": {"mrr": compute_mrr(asked, ranking)} for name, ranking in rankings.items()
    }
    shown = rank_all(learned, searcher, None)
    for condition, (noise, is_hostile) in CONDITIONS.items():
        events = list(simulate_feedback(learned, shown, noise, is_hostile, random))
        lessons = learn(events, LearnConfig())
        model = feature_training.fit(lessons.questions, searcher, FEATURES_DEPTH, searcher, seed)
        mrr = compute_mrr(asked, measured(model))
        rows[f"learned, {condition}"] = judge(lessons.questions, learned, shown) | {"mrr": mrr}
        for kind in KINDS:
            rows[f"trial, {condition}, {kind}"] = run_trials(asked, rankings, kind, noise, is_hostile, random)
    return rows


def draw_questions(questions: Sequence[Question], random: Random) -> tuple[list[Question], list[Question]]:
    """Questions to learn from, and others over other documents, no text twice."""
    unique = list({question.question.casefold(): question for question in questions}.values())
    files = sorted({question.evidence[0].file for question in unique})
    held_out = set(random.sample(files, len(files) // 2))
    sides: dict[bool, list[Question]] = {False: [], True: []}
    for question in random.sample(unique, len(unique)):
        sides[question.evidence[0].file in held_out].append(question)
    return sides[False][:NUM_LEARNED], sides[True][:NUM_ASKED]


def rank_all(questions: Sequence[Question], searcher: Searcher, model: Any) -> Rankings:
    """The best pages for each question, by the question alone or in the order of a model."""
    index = FeatureSearcher(model, searcher, FEATURES_DEPTH, searcher) if model else searcher
    return {question.id: tuple(hit.page for hit in index.search(question.question, DEPTH)) for question in questions}


def compute_mrr(questions: Sequence[Question], rankings: Rankings) -> float:
    """Mean reciprocal rank of the first evidence page."""

    def reciprocal(question: Question) -> float:
        places = [place for place, page in enumerate(rankings[question.id], start=1) if page in question.evidence]
        return 1 / places[0] if places else 0.0

    return fmean(map(reciprocal, questions))


def behave(question: Question, pages: Sequence[Evidence], noise: float, random: Random) -> Iterator[tuple[Evidence, Action]]:
    """A user's actions on pages."""
    is_noisy = random.random() < noise
    for rank, page in enumerate(pages, start=1):
        is_right = random.random() < 0.5 if is_noisy else page in question.evidence
        if random.random() < 1 / rank and random.random() < (EVIDENT if is_right else OTHER):
            yield page, "opened"
            if random.random() < MARKED:
                yield page, "right" if is_right else "wrong"


def search(question: Question, pages: Sequence[Evidence], client: str, part: TrialPart | None = None) -> ShownSearch:
    """A search that a client has made."""
    number = next(NUMBERS)
    return ShownSearch(f"s{number}", number, client, "", question.question, "", "base", tuple(pages), part)


def mark(of: ShownSearch, page: Evidence, action: Action) -> Mark:
    """The mark that the client of a search gives to a page of it."""
    return Mark(of.id, of.time, of.client, action, page, of.pages.index(page) + 1)


def simulate_feedback(
    questions: Sequence[Question], shown: Rankings, noise: float, is_hostile: bool, random: Random
) -> Iterator[Event]:
    """Actions of users on the pages that the questions alone find."""
    for question in questions:
        for client in random.sample(range(NUM_CLIENTS), random.randint(1, 2 * VOICES_A_QUESTION - 1)):
            visit = search(question, shown[question.id], f"c{client}")
            yield visit
            yield from (mark(visit, page, action) for page, action in behave(question, visit.pages, noise, random))
    for question in questions[::2] if is_hostile else ():
        visit = search(question, shown[question.id], "hostile")
        yield visit
        for page in visit.pages:
            yield mark(visit, page, "wrong" if page in question.evidence else "right")


def judge(learned: Sequence[Question], asked: Sequence[Question], shown: Rankings) -> dict[str, float | None]:
    """Precision and recall of learned evidence."""
    truth = {question.question: set(question.evidence) for question in asked}
    known = [(page, truth[question.question]) for question in learned for page in question.evidence]
    found = {question.question for question in learned if set(question.evidence) & truth[question.question]}
    findable = [question for question in asked if set(shown[question.id]) & set(question.evidence)]
    return {
        "questions": float(len(learned)),
        "precision": fmean(page in evidence for page, evidence in known),
        "recall": len(found) / len(findable),
    }


def run_trials(
    questions: Sequence[Question], rankings: Mapping[str, Rankings], kind: str, noise: float, is_hostile: bool, random: Random
) -> dict[str, float | None]:
    """Ends of trials of one kind, and the number of votes until then."""
    ends, votes = Counter[str](), list[int]()
    begin = partial(begin_search, questions, rankings, kind, random)
    for _ in range(NUM_TRIALS):
        hostile = list(disturb(begin, "A" if kind == "better" else "B")) if is_hostile else []
        end, number = run_trial(partial(draw_voices, begin, noise, random), hostile)
        ends[end] += 1
        votes += [number] if end != "nothing" else []
    shares = {f"decided {end}": ends[end] / NUM_TRIALS for end in ("better", "worse", "equal", "nothing")}
    return {**shares, "votes": median(votes) if votes else None}


def begin_search(
    questions: Sequence[Question], rankings: Mapping[str, Rankings], kind: str, random: Random, client: str
) -> tuple[Question, ShownSearch]:
    """A search of a client with pages of both sides."""
    pairs = {"better": ["question", "given"], "worse": ["given", "question"], "equal": random.sample(list(rankings), 2)}
    question = random.choice(questions)
    champion, challenger = (rankings[name][question.id] for name in pairs[kind])
    pages, teams = interleave(champion, challenger, DEPTH, random)
    return question, search(question, pages, client, TrialPart("t", teams))


def draw_voices(begin: Begin, noise: float, random: Random, number: int) -> Iterator[Event]:
    """So many users with a search each."""
    for _ in range(number):
        question, visit = begin(f"c{next(NUMBERS)}")
        yield visit
        yield from (mark(visit, page, action) for page, action in behave(question, visit.pages, noise, random))


def disturb(begin: Begin, team: str) -> Iterator[Event]:
    """A thousand searches of one client, which praises the pages of a team, and the others it does not."""
    for _ in range(1000):
        _, visit = begin("hostile")
        assert visit.part, "of a trial"
        yield visit
        for page, of in zip(visit.pages, visit.part.teams, strict=True):
            yield mark(visit, page, "right" if of == team else "wrong")


def run_trial(draw: Callable[[int], Iterator[Event]], hostile: Sequence[Event]) -> tuple[str, int]:
    """The decision of a trial, looked at after each vote, and the votes until then; a hostile client comes first."""
    events: list[Event] = list(hostile)
    trial = Trial("t", 0, Contender("A"), Contender("B"), "interleave", TERMS.alpha, TERMS.margin, TERMS.searches, TERMS.voices)
    for before, number in pairwise((0, *BLOCKS)):
        events += draw(number - before)
        standing = measure_trial(trial, events, next(NUMBERS) + CLOSED_AFTER_S)
        if standing.decision:
            return standing.decision, standing.test.wins + standing.test.losses
    return "nothing", 0


if __name__ == "__main__":
    main()

"""Results by the number of training questions: `results/learning_curve.json`.

A row is a policy that has learned from so many questions of the train split, on all held-out questions of a set. This script
makes those of policies that learn without a model, each for some draws of the training questions, and takes those of models from
finished evaluations. A row of the same set, policy, model, number of questions and draw replaces the one that is there.
`vs_question` is as in `effect.json`, corrected (Holm) over the rows of this file.

python benchmarks/bench_learning_curve.py --index medquad=runs/medquad/index [NAME=FOLDER ...] [--questions 250 500 ...]
python benchmarks/bench_learning_curve.py --evaluation medquad:4000=runs/medquad/evaluate [NAME:NUMBER[:GPU_S]=FOLDER ...]

GPU_S are the seconds that a GPU was busy for what the policy has learned from so many questions, where somebody has counted them.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_effect import MEASURES, Row, ask, build_rows, correct, is_trained, read_evaluation
from record import RESULTS_DIR, write_result

from drag_ray.baselines.baseline import Baseline, Sources
from drag_ray.baselines.neighbours import Neighbours
from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.registry import BASELINES
from drag_ray.baselines.templates import Templates
from drag_ray.corpus.questions import read_split
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.stage_runs import provenance
from drag_ray.storage.artifacts import require_manifest
from drag_ray.types import Question

NAME = "learning_curve"
LEARNING = (Neighbours.name, Templates.name)
NUM_QUESTIONS = (125, 500, 2000)
"""Training questions to learn from, beside all."""
NUM_DRAWS = 3
"""Draws of as many: which questions they are matters, the more the fewer there are."""
KEY = ("set", "policy", "model", "train_questions", "draw")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", nargs="*", default=[], metavar="NAME=FOLDER", help="sets for policies without a model")
    parser.add_argument("--questions", nargs="*", type=int, default=NUM_QUESTIONS, help="numbers of training questions")
    parser.add_argument(
        "--evaluation", nargs="*", default=[], metavar="NAME:NUMBER[:GPU_S]=FOLDER", help="finished evaluate stages"
    )
    parser.add_argument("--policies", nargs="*", default=[], help="of these evaluations; all that have learned by default")
    parser.add_argument("--split", default="test", help="what the held-out questions are called in the set")
    parser.add_argument("--model", default="", help="name of the evaluations' model, where it is not that of its folder")
    options = parser.parse_args()
    path = RESULTS_DIR / f"{NAME}.json"
    rows: list[Row] = json.loads(path.read_text())["results"]["rows"] if path.exists() else []
    new: list[Row] = []
    for entry in options.index:
        name, _, folder = entry.partition("=")
        new += measure_without_model(name, options.split, Path(folder), options.questions)
    for entry in options.evaluation:
        learned, _, folder = entry.partition("=")
        name, number, *gpu_s = learned.split(":")
        known = {"train_questions": int(number), "draw": 0}
        if gpu_s:
            [known["gpu_s"]] = map(int, gpu_s)
        found = [row for row in read_evaluation(name, options.split, Path(folder), options.model) if is_trained(row["policy"])]
        new += [row | known for row in found if not options.policies or row["policy"] in options.policies]
    keys = {tuple(row[key] for key in KEY) for row in new}
    rows = [row for row in rows if tuple(row[key] for key in KEY) not in keys] + new
    rows.sort(key=lambda row: (row["set"], row["model"], row["policy"], row["train_questions"], row["draw"]))
    correct(rows)
    for row in rows:
        print(*(row[key] for key in KEY), *(row[name] for name in MEASURES))
    write_result(NAME, {"rows": rows}, measured_here=False)


def measure_without_model(name: str, split: str, index_dir: Path, numbers: Sequence[int]) -> list[Row]:
    """The rows of the policies that learn without a model, each asked all test questions of an index stage."""
    require_manifest(index_dir, "python jobs/index.py")
    num_train = len(read_split(index_dir, "train"))
    planned = [(number, draw) for number in numbers if number < num_train for draw in range(NUM_DRAWS)] + [(num_train, 0)]
    about = {"set": name, "split": split, "run": "", "model": "", "machine": provenance.read_machine()}
    asked = ask({RawQuestion.name: RawQuestion()}, index_dir)
    rows: list[Row] = []
    for number, draw in planned:
        started = time.perf_counter()
        learned = ask({policy: learn(policy, index_dir, number, draw) for policy in LEARNING}, index_dir)
        made = build_rows(about, asked | learned, {}, LEARNING)
        rows += [{**row, "train_questions": number, "draw": draw} for row in made]
        print(f"{name}: {number} questions, draw {draw}: {time.perf_counter() - started:.0f} s", flush=True)
    return rows


@dataclass(frozen=True)
class FewerQuestions(Sources):
    """Sources of which a baseline is given so many training questions."""

    num_questions: int = 0

    def draw_questions(self, limit: int) -> list[Question]:
        """So many as there are to be, whatever is asked for."""
        return super().draw_questions(self.num_questions)


def learn(policy: str, index_dir: Path, num_questions: int, draw: int) -> Baseline:
    """A policy that has learned from so many training questions."""
    return BASELINES[policy].prepare(FewerQuestions(EvaluateConfig(), index_dir, draw, num_questions=num_questions))


if __name__ == "__main__":
    main()

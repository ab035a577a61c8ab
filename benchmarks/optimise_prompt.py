"""Better instructions for a policy without training, a baseline for it (GEPA, https://arxiv.org/abs/2507.19457).

The policy is asked train questions, greedily, and is shown what came of them when it writes other instructions. Those that find
most on questions set apart are printed at the end: give them as `agent.instructions`, and compare both evaluations
(`drag-ray compare`).

python benchmarks/optimise_prompt.py runs/mine [--config jobs/configs/demo.toml] [--rollouts 500]
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, ProposalFn

from drag_ray import open_run
from drag_ray.agent.prompts import choose_instructions
from drag_ray.agent.scores import compute_utility, find_best_rank, list_ranks
from drag_ray.api.agent import Agent
from drag_ray.corpus.near_duplicates import read_near_duplicates
from drag_ray.corpus.questions import draw_questions, draw_split
from drag_ray.corpus.split import find_overlaps
from drag_ray.types import Question

COMPONENT = "instructions"
MAX_TOKENS = 400
"""of a proposal"""
PAGE_CHARS = 300
"""of the right page, which a proposal is shown"""


class SearchAdapter:
    """The policy as a `GEPAAdapter`: a candidate's score on a question is the utility of the best rank that it finds."""

    propose_new_texts: ProposalFn | None = None

    def __init__(self, agent: Agent, texts: Mapping[Any, str], concurrency: int) -> None:
        self._agent, self._texts, self._concurrency = agent, texts, concurrency
        self._numbers = itertools.count()

    def evaluate(
        self, batch: list[Question], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[dict[str, Any], dict[str, Any]]:
        """Roll out a batch."""
        with ThreadPoolExecutor(self._concurrency) as threads:
            records = list(threads.map(lambda question: self._ask(question, candidate[COMPONENT]), batch))
        return EvaluationBatch(records, [record.pop("score") for record in records], records)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: EvaluationBatch[Any, Any], components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The records that a proposal is made from."""
        return {COMPONENT: eval_batch.outputs}

    def reflect(self, prompt: str | list[dict[str, Any]]) -> str:
        """The model's own reply to a request for other instructions."""
        return self._agent.write(str(prompt), seed=next(self._numbers), max_tokens=MAX_TOKENS)

    def _ask(self, question: Question, instructions: str) -> dict[str, Any]:
        pages = [(page.file, page.page_number) for page in question.evidence]
        found = self._agent.roll_out(question.question, pages, instructions=instructions)
        rollout = found.trajectory
        best, alone = find_best_rank(list_ranks(rollout)), rollout.question_search.rank
        written = "; ".join(turn.query or turn.raw_text for turn in rollout.turns)
        return {
            "Inputs": {"Question": question.question},
            "Generated Outputs": written or "nothing",
            "Feedback": f"The question alone finds the right page at rank {alone or 'none'}, with the reply it is at rank "
            f"{best or 'none'}. {rollout.error} The right page says: {self._texts[question.evidence[0]][:PAGE_CHARS]}",
            "score": compute_utility(best, rollout.depth),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--config", type=Path, default=None)
    parser.add_argument("--rollouts", type=int, default=500, help="at most, those of all proposals together")
    parser.add_argument("--validation", type=int, default=50, help="questions that the best proposal is chosen by")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    run = open_run(options.run_dir, options.config)
    index_dir = run.locate("index")
    questions = [question for question in draw_split(index_dir, "train", 0, options.seed) if question.evidence]
    validation = draw_questions(questions, min(options.validation, len(questions) // 2), options.seed)
    overlaps = find_overlaps(questions, validation, "question", read_near_duplicates(index_dir, questions))
    feedback = [question for question in questions if question.id not in overlaps]
    searcher = run.open_searcher()
    texts = {question.evidence[0]: searcher.text(question.evidence[0]) for question in questions}
    with run.open_agent() as agent:
        adapter = SearchAdapter(agent, texts, run.config.engine.max_num_seqs)
        result = optimize(
            {COMPONENT: choose_instructions(run.config.agent)},
            feedback,
            validation,
            adapter,
            reflection_lm=adapter.reflect,
            reflection_minibatch_size=8,
            max_metric_calls=options.rollouts,
            seed=options.seed,
        )
    first, best = result.val_aggregate_scores[0], result.val_aggregate_scores[result.best_idx]
    print(f"utility {first:.3f} -> {best:.3f} on {len(validation)} questions, {result.total_metric_calls} rollouts\n")
    print(result.candidates[result.best_idx][COMPONENT])


if __name__ == "__main__":
    main()

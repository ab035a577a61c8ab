"""Cost and accuracy of a judge's verdict, on answers that are known to be right or wrong.

python benchmarks/judge_cost.py --address http://127.0.0.1:8000/v1 --model base [--questions 50]
    [--key-variable NAME] [--prompt-price 0.15] [--completion-price 0.6] [--data-dir ../shared/data]

Each question of fairytaleqa's dev split is answered twice: with its gold answer within a sentence, and with another question's.
The judge is the one of `evaluate.judge`, behind any endpoint; for the project's own start `python jobs/serve.py`.
"""

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from public_sets import DATA_DIR, read_page_set, require
from record import write_result

from drag_ray.agent.config import AgentConfig
from drag_ray.engine.config import EndpointConfig, EngineConfig
from drag_ray.evaluate.judged_results import build_case, judge_answers
from drag_ray.process.interchange.drag import read_trajectories
from drag_ray.rollout.config import JudgeConfig
from drag_ray.rollout.judgements import Judgements
from drag_ray.types import Question, Trajectory

RIGHT, WRONG = "right", "wrong"


def answer(questions: Sequence[Question], said: Sequence[str], folder: Path) -> list[Trajectory]:
    """Rollouts that answer each question with the text in its place."""
    records = [
        {
            **{"id": question.id, "question_id": question.id, "question": question.question},
            "ground_truth": {"answers": list(question.answers), "answer_locations": []},
            "iterations": [{"action": "provide_answer", "answer": [text]}],
        }
        for question, text in zip(questions, said, strict=True)
    ]
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    read = read_trajectories(path, AgentConfig(query_mode="rewrite"))
    return [rollout for rollout in read if isinstance(rollout, Trajectory)]


def count_verdicts(rollouts: Sequence[Trajectory], judgements: Judgements) -> dict[str, int]:
    """Counts of each verdict; `none` for replies that hold none."""
    cases = [case for rollout in rollouts if (case := build_case(rollout))]
    return dict(Counter(judgements.by_case[case.key].verdict or "none" for case in cases if case.key in judgements.by_case))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Tokens, cost, seconds and verdicts."""
    found = read_page_set(require(options.data_dir / "fairytaleqa")).questions
    dev = [question for question in found if question.split == "test" and question.answers]
    questions = random.Random(0).sample(dev, options.questions)
    gold = [question.answers[0] for question in questions]
    said = {RIGHT: [f"As the tale has it: {text}" for text in gold], WRONG: [*gold[1:], gold[0]]}
    terms = {"prompt_price": options.prompt_price, "completion_price": options.completion_price}
    endpoint = EndpointConfig(address=options.address, key_variable=options.key_variable, **terms)
    engine = EngineConfig(backend="openai", model=options.model, endpoint=endpoint)
    config = JudgeConfig(enabled=True, engine=engine, max_tokens=options.max_tokens)
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as folder:
        rollouts = {kind: answer(questions, texts, Path(folder)) for kind, texts in said.items()}
        started = time.perf_counter()
        judgements = judge_answers(rollouts, config, Path(folder) / "judge")
        seconds = time.perf_counter() - started
    judged = list(judgements.by_case.values())
    read, written = sum(one.prompt_tokens for one in judged), sum(one.completion_tokens for one in judged)
    return {
        "model": options.model,
        "questions": len(questions),
        "max_tokens": options.max_tokens,
        "answers_judged": len(judged),
        "prompt_tokens_per_answer": round(read / len(judged), 1),
        "completion_tokens_per_answer": round(written / len(judged), 1),
        "seconds": round(seconds, 1),
        **terms,
        "cost_per_thousand_answers": round(endpoint.compute_cost(read, written) / len(judged) * 1000, 4),
        "verdicts": {kind: count_verdicts(some, judgements) for kind, some in rollouts.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", required=True, help="of an endpoint, as engine.endpoint.address")
    parser.add_argument("--model", default="base", help="as the endpoint calls it")
    parser.add_argument("--key-variable", default="", help="environment variable that holds the endpoint's key")
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--max-tokens", type=int, default=64, help="of a verdict; a judge that reasons wants more")
    parser.add_argument("--prompt-price", type=float, default=0.15, help="of a million tokens read")
    parser.add_argument("--completion-price", type=float, default=0.6, help="of a million tokens written")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    options = parser.parse_args()
    numbers = measure(options)
    print(json.dumps(numbers, indent=1))
    write_result("judge_cost", numbers)


if __name__ == "__main__":
    main()

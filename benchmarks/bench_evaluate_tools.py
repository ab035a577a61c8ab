"""Effect of tools of text beside search: one model on the same held-out questions with search alone, and with read_page and grep.

python benchmarks/bench_evaluate_tools.py --model MODEL [--questions 800] [--set medquad] [--folder RUN]

Both sides go through the evaluate stage, as `python jobs/evaluate.py --name alone` and `--name tools` would: the same index,
model, prompt and protocol, as many turns, greedy, and every reply is drawn as a call, for a model of 1.5B parameters has called
nothing by itself. A question is solved when a page of its evidence has been seen: it was among the pages that a search shows, or
`read_page` has read it (lines of `grep` are no page). Solved questions are counted up to as many distinct pages, turns, and
tokens written; differences are of the same questions, with intervals over documents.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from public_sets import DATA_DIR
from record import write_result

import drag_ray
from drag_ray.cluster.connection import connect
from drag_ray.evaluate.evaluation_folder import read_outcome
from drag_ray.evaluate.policies.policy import BASE_NAME
from drag_ray.evaluate.statistics.intervals import bootstrap_means, compute_interval
from drag_ray.rollout.engine_pool import keep_engines
from drag_ray.search.searcher import Searcher
from drag_ray.tools.read_page import TOOL as READ_PAGE
from drag_ray.tools.workspace import Workspace
from drag_ray.types import ActionKind, Evidence, Trajectory, Turn

SIDES = {"alone": ("search",), "tools": ("search", "read_page", "grep")}
TURNS = 6
PAGES_COUNTED = (3, 5, 10)
TOKENS_COUNTED = (50, 100, 200, 400)
OBSERVATION_CHARS = 16_000
"""of a page and three on each side of it"""
CONFIDENCE, NUM_RESAMPLES = 0.95, 10_000


@dataclass(frozen=True)
class Course:
    """The pages that a rollout saw, and when it first saw evidence.

    Attributes:
        num_pages: distinct pages.
        solved_at_turn: when it first saw evidence; infinite where it never did, as the next two.
        solved_at_pages: the distinct pages up to it.
        solved_at_tokens: the tokens written up to the end of that turn.
        cites: whether its answer names a page of the evidence.
    """

    num_pages: int
    solved_at_turn: float
    solved_at_pages: float
    solved_at_tokens: float
    cites: bool


class Tracer:
    """Follows rollouts over the pages of an index."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher

    def trace(self, trajectory: Trajectory) -> Course:
        """The course of a rollout."""
        evidence, seen, tokens = set(trajectory.evidence), dict[Evidence, None](), 0
        solved: tuple[float, float, float] = (np.inf, np.inf, np.inf)
        for turn in trajectory.turns:
            tokens += turn.reply.num_completion_tokens
            for page in self._list_seen(turn, trajectory.top_k):
                seen.setdefault(page)
                if page in evidence and solved[0] == np.inf:
                    solved = (turn.step, len(seen), tokens)
        return Course(len(seen), *solved, bool(evidence & set(trajectory.final_answer.citations)))

    def _list_seen(self, turn: Turn, top_k: int) -> list[Evidence]:
        """The pages whose text a turn has shown, in their order."""
        if turn.action is ActionKind.SEARCH:
            return [Evidence(hit.file, hit.page_number) for hit in turn.ranking.hits[:top_k]]
        if turn.call.tool != READ_PAGE.name or turn.call.error:
            return []
        asked: Any = READ_PAGE.read_arguments(turn.call.arguments)
        file = Workspace(self._searcher).resolve_file(asked.file)
        return [Evidence(file, number) for number in asked.list_numbers() if self._searcher.find_page(file, number)]


def describe(trajectories: Sequence[Trajectory], courses: Sequence[Course]) -> dict[str, Any]:
    """Effort of a side for a question, and counts of its replies."""
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    number = len(trajectories)
    called = {turn.call.tool for turn in turns if turn.call.tool}
    return {
        "questions": number,
        "failed": sum(bool(trajectory.error) for trajectory in trajectories),
        "turns": round(len(turns) / number, 3),
        "searches": round(sum(turn.action is ActionKind.SEARCH for turn in turns) / number, 3),
        "unreadable_replies": round(sum(turn.action is ActionKind.INVALID for turn in turns) / len(turns), 4),
        "answered": round(sum(bool(trajectory.final_answer.text) for trajectory in trajectories) / number, 4),
        "tokens_read": round(sum(turn.reply.num_prompt_tokens for turn in turns) / number, 1),
        "tokens_written": round(sum(turn.reply.num_completion_tokens for turn in turns) / number, 1),
        "pages": round(sum(course.num_pages for course in courses) / number, 3),
        "calls": {
            tool: {
                "calls": sum(turn.call.tool == tool for turn in turns),
                "errors": sum(turn.call.tool == tool and bool(turn.call.error) for turn in turns),
                "mean_ms": round(float(np.mean([turn.call.duration_s for turn in turns if turn.call.tool == tool])) * 1e3, 2),
            }
            for tool in sorted(called)
        },
    }


def list_columns() -> Iterator[tuple[str, Callable[[Course], float]]]:
    """The figures of a course, by name."""
    yield "solved", lambda course: course.solved_at_turn < np.inf
    yield "cites", lambda course: course.cites
    for limit in range(1, TURNS + 1):
        yield f"in {limit} turns", lambda course, limit=limit: course.solved_at_turn <= limit
    for limit in PAGES_COUNTED:
        yield f"in {limit} pages", lambda course, limit=limit: course.solved_at_pages <= limit
    for limit in TOKENS_COUNTED:
        yield f"in {limit} tokens", lambda course, limit=limit: course.solved_at_tokens <= limit


def compare(sides: dict[str, Sequence[Course]], files: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The share of questions of each side by column, and the difference that tools make, with its interval.

    Args:
        sides: courses for the same questions in the same order.
        files: the document of each question.
    """
    counts = [count for _, count in list_columns()]
    tables = {
        side: np.array([[float(count(course)) for count in counts] for course in courses]) for side, courses in sides.items()
    }
    _, clusters = np.unique(files, return_inverse=True)
    drawn = bootstrap_means(tables["tools"] - tables["alone"], clusters.astype(np.int64), NUM_RESAMPLES, seed=0)
    compared: dict[str, dict[str, Any]] = {}
    for place, (name, _) in enumerate(list_columns()):
        shares = {side: float(table[:, place].mean()) for side, table in tables.items()}
        interval = compute_interval(drawn[:, place], CONFIDENCE)
        assert interval
        compared[name] = {side: round(share, 4) for side, share in shares.items()}
        compared[name]["difference"] = round(shares["tools"] - shares["alone"], 4)
        compared[name]["interval"] = [round(end, 4) for end in interval]
    return compared


def evaluate(arguments: argparse.Namespace, folder: Path) -> None:
    """Evaluate both sides, and keep what is known after each."""
    source = arguments.data_dir / arguments.set
    options = {
        "corpus": {"documents": str(source / "pages.jsonl.gz"), "questions": str(source / "questions.jsonl")},
        "agent": {"protocol": "tools", "query_mode": "rewrite", "max_iterations": TURNS, "max_tokens": 256, "thinking": False}
        | {"forced_calls": True}
        | {"page_chars": arguments.page_chars, "observation_chars": OBSERVATION_CHARS},
        "engine": {"model": arguments.model, "dtype": "bfloat16", "max_model_len": 16_384, "logprobs": False, "seeds": False}
        | {"max_num_seqs": arguments.concurrency, "enforce_eager": arguments.eager}
        | {"gpu_memory_utilization": arguments.gpu_memory_utilization},
        "rollout": {"concurrent_rollouts": arguments.concurrency},
        "evaluate": {"limit": arguments.questions, "baselines": ["question"]},
    }
    courses: dict[str, Sequence[Course]] = {}
    results: dict[str, Any] = {"model": Path(arguments.model).name, "set": arguments.set, "turns": TURNS, "sides": {}}
    with drag_ray.open_run(folder, **options) as run, ExitStack() as stack:
        stack.enter_context(connect(run.config.cluster))
        stack.enter_context(keep_engines())
        run.index()
        tracer = Tracer(run.open_searcher())
        for side, tools in SIDES.items():
            run.evaluate(name=side, agent={"tools": list(tools)})
            outcome = read_outcome(run.locate("evaluate", name=side))
            rolled_out = sorted(outcome.trajectories[BASE_NAME], key=lambda trajectory: trajectory.question_id)
            courses[side] = [tracer.trace(trajectory) for trajectory in rolled_out]
            measures = {
                name: {policy: value and round(value, 4) for policy, value in values.items()}
                for name, values in outcome.list_values().items()
            }
            results["sides"][side] = {"tools": tools, **describe(rolled_out, courses[side]), "measures": measures}
            if len(courses) == len(SIDES):
                results["compared"] = compare(courses, [trajectory.evidence[0].file for trajectory in rolled_out])
            write_result(arguments.name, results)
    print(json.dumps(results, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="as engine.model; its chat template has to show functions")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="folder of the public sets")
    parser.add_argument("--set", default="medquad")
    parser.add_argument("--questions", type=int, default=800, help="held-out questions")
    parser.add_argument("--page-chars", type=int, default=500, help="as agent.page_chars; read_page shows whole pages")
    parser.add_argument("--concurrency", type=int, default=256)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9, help="as engine.gpu_memory_utilization")
    parser.add_argument("--eager", action="store_true", help="as engine.enforce_eager")
    parser.add_argument("--folder", type=Path, help="the run; a temporary folder by default")
    parser.add_argument("--name", default="evaluate_tools", help="name of the result")
    arguments = parser.parse_args()
    if not arguments.model:
        print("skipped: name a --model whose chat template shows functions; that of the embedded one does not")
        return
    with tempfile.TemporaryDirectory(prefix="drag-ray-bench-") as scratch:
        evaluate(arguments, (arguments.folder or Path(scratch)).resolve())


if __name__ == "__main__":
    main()

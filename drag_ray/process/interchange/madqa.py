"""Predictions as MADQA's evaluation reads them (https://github.com/OxRML/MADQA, eval/README.md): one JSON object a line.

    {"id": "q1", "question": "...", "answer": "340 rpm", "citations": [{"document": "manual.pdf", "page": 7}],
     "search_history": [{"query": "rotor", "num_results": 3}], "iterations": 2}

They go out alone: such a line names no evidence and no pages that were found, so nothing could be learned from it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drag_ray.agent.keywords import choose_words
from drag_ray.process.interchange_format import Interchange, take_once
from drag_ray.storage.artifacts import write_jsonl
from drag_ray.types import ActionKind, Trajectory


def write_predictions(trajectories: Iterable[Trajectory], path: Path) -> int:
    """Write a line for each question; the file is whole or absent. Returns how many. Raises DataError where a question was asked
    more than once, so that there is no one prediction of it."""
    rows = [to_prediction(trajectory) for trajectory in take_once(trajectories, "prediction")]
    write_jsonl(path, rows)
    return len(rows)


def to_prediction(trajectory: Trajectory) -> dict[str, Any]:
    """The prediction of one trajectory; the answer is empty where the policy gave none."""
    searches = [turn for turn in trajectory.turns if turn.action is ActionKind.SEARCH]
    words = choose_words(trajectory.question, trajectory.question_search.words)
    asked = f"{words} " if trajectory.question_search.mode == "expand" else ""
    return {
        "id": trajectory.question_id,
        "question": trajectory.question,
        "answer": trajectory.final_answer.text,
        "citations": [{"document": page.file, "page": page.page_number} for page in trajectory.final_answer.citations],
        "search_history": [
            {"query": f"{asked}{turn.query}".strip(), "num_results": len(turn.ranking.hits[: trajectory.top_k])}
            for turn in searches
        ],
        "iterations": len(trajectory.turns),
    }


INTERCHANGE = Interchange(
    read=None,
    write=write_predictions,
    refusal="predictions of MADQA name no pages that were found, so nothing can be learned from them.",
    has_orders=False,
)

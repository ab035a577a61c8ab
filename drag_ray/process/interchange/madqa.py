"""Predictions as MADQA's evaluation reads them (https://github.com/OxRML/MADQA, eval/README.md): one JSON object a line.

    {"id": "q1", "question": "...", "answer": "340 rpm", "citations": [{"document": "manual.pdf", "page": 7}],
     "search_history": [{"query": "rotor", "num_results": 3}], "iterations": 2}

They go out alone: such a line names no evidence and no pages that were found, so nothing could be learned from it.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drag_ray.agent.keywords import choose_words
from drag_ray.errors import DataError
from drag_ray.process.interchange_format import Interchange
from drag_ray.storage.artifacts import whole_or_absent
from drag_ray.types import ActionKind, Trajectory


def write_predictions(trajectories: Iterable[Trajectory], path: Path) -> int:
    """Write a line for each question; the file is whole or absent. Returns how many. Raises DataError where a question was asked
    more than once, so that there is no one prediction of it."""
    seen: set[str] = set()
    with whole_or_absent(path) as scratch, scratch.open("w", encoding="utf-8") as lines:
        for trajectory in trajectories:
            if trajectory.question_id in seen:
                raise DataError(
                    f"question {trajectory.question_id!r}: several rollouts, expected one prediction a question. Export those of "
                    "a policy of the evaluation: --policy NAME."
                )
            seen.add(trajectory.question_id)
            lines.write(json.dumps(to_prediction(trajectory), ensure_ascii=False) + "\n")
    return len(seen)


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

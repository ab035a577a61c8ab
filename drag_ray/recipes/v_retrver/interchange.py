"""Lists that were put in order as V-Retrver has them (https://github.com/chendy25/V-Retrver), rows of JSON or Parquet.

    {"extra_info": {"qid": "8:12", "query_text": "...", "ground_truth_position": 1},
     "hit": [{"candidate_texts": "...", "candidate_images": "b.jpg"}, ...], "response": "<answer>[2, 1]</answer>"}

with the candidates in the order after the last window, in which the ground truth has the position that is given (0: it is not
among them). `response` is the last reply. What comes in is a set of questions with candidates (`candidate_sets`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.agent.scores import list_ranked_turns
from drag_ray.agent.tasks import ORDERING
from drag_ray.errors import DataError
from drag_ray.process.interchange_format import Interchange, ReadPage, take_once
from drag_ray.recipes.v_retrver.candidate_sets import import_candidate_set
from drag_ray.storage.artifacts import write_jsonl, write_parquet
from drag_ray.types import CAPTION, Hit, Trajectory

_SUFFIXES = (".jsonl", ".parquet")
_HIT = pa.struct([("candidate_texts", pa.string()), ("candidate_images", pa.string())])
_EXTRA = pa.struct(
    [("qid", pa.string()), ("query_text", pa.string()), ("ground_truth_position", pa.int64()), ("num_candidates", pa.int64())]
)
_SCHEMA = pa.schema([("data_source", pa.string()), ("extra_info", _EXTRA), ("hit", pa.list_(_HIT)), ("response", pa.string())])


def write_lists(trajectories: Iterable[Trajectory], path: Path, read_page: ReadPage) -> int:
    """Write a row for each question; the file is whole or absent. Returns how many. Raises DataError where the file is of another
    kind, a rollout orders nothing, or a question was asked more than once.

    Args:
        path: a `.jsonl` or `.parquet` file.
        read_page: gives a candidate's text and whether it has a picture.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise DataError(f"{path}: expected a name that ends with {' or '.join(_SUFFIXES)}.")
    rows = [to_row(trajectory, read_page) for trajectory in take_once(trajectories, "list")]
    if path.suffix.lower() == ".parquet":
        write_parquet(path, pa.Table.from_pylist(rows, schema=_SCHEMA))
    else:
        write_jsonl(path, rows)
    return len(rows)


def to_row(trajectory: Trajectory, read_page: ReadPage) -> dict[str, Any]:
    """The row of one list; a rollout that failed, or whose replies could not be read, has left the order that it was given.
    Raises DataError where the rollout is of another task."""
    if trajectory.task not in ORDERING and not trajectory.provenance.baseline:
        fitting = " or ".join(ORDERING)
        raise DataError(
            f"trajectory {trajectory.id!r} is of the task {trajectory.task}, which orders nothing; expected {fitting}."
        )
    ordered = [] if trajectory.error else list_ranked_turns(trajectory)
    hits = ordered[-1].ranking.hits if ordered else trajectory.question_search.hits
    return {
        "data_source": trajectory.category,
        "extra_info": {
            "qid": trajectory.question_id,
            "query_text": trajectory.question,
            "ground_truth_position": compute_evidence_rank(hits, trajectory.evidence) or 0,
            "num_candidates": len(hits),
        },
        "hit": [_to_candidate(hit, read_page) for hit in hits],
        "response": trajectory.turns[-1].raw_text if trajectory.turns else "",
    }


def _to_candidate(hit: Hit, read_page: ReadPage) -> dict[str, str]:
    page = read_page(hit.page)
    text = page.text if not page.image or page.text_source == CAPTION else ""
    return {"candidate_texts": text, "candidate_images": hit.file if page.image else ""}


INTERCHANGE = Interchange(
    read=None,
    write=write_lists,
    refusal="a set of questions with candidates holds no rollouts.",
    reads_pages=True,
    convert=import_candidate_set,
)

"""A run like that of jobs/configs/small.toml, finished in a moment: its stages have left what they leave, without a model."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from evaluation_cases import build_questions, build_rollouts
from factories import change
from finished_cases import write_evaluation
from small_index import finish_index

import drag_ray
from drag_ray import schemas
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Page

_ROOT = Path(drag_ray.__file__).parents[1]
_RANKS = {"question": [2, 4, None, 9, 1, 1], "base": [1, 4, None, 9, 1, 2], "tuned": [1, 3, 2, 8, 1, 1]}
_TEXTS = ("Lists the images of a repository.", "The images of a repository are deleted.", "A repository has images.")


def write_small_run(folder: Path) -> None:
    """Write the run that the examples of the API name, below a folder that becomes the working directory.

    Its policies are `question`, `base` and `tuned`, as those of a real one, and its collection has found something and missed
    something.
    """
    run_dir = folder / "runs" / "small"
    config = Path("jobs", "configs", "small.toml")
    (folder / config).parent.mkdir(parents=True)
    shutil.copyfile(_ROOT / config, folder / config)
    asked = build_questions(6)
    questions = [replace(question, split="test" if number % 2 else "train") for number, question in enumerate(asked)]
    finish_index(run_dir, [Page("ecr.pdf", number, 3, text) for number, text in enumerate(_TEXTS, start=1)], questions)
    rollouts = build_rollouts({"base": _RANKS["base"]})["base"]
    with StageFolder(run_dir / "collect", Identity("collect", {}, {})) as stage:
        table = schemas.to_table(
            [change(rollout, query_mode="expand", question_words="key") for rollout in rollouts], schemas.TRAJECTORIES
        )
        artifacts.write_parquet(stage.path / "trajectories" / "part-00000.parquet", table)
        stage.finish({"finished": len(rollouts)})
    write_evaluation(run_dir / "evaluate", _RANKS)
    write_candidates(folder / "candidates.jsonl")


def write_candidates(path: Path) -> None:
    """A question with candidates, in the form of V-Retrver."""
    hits = [{"candidate_texts": text, "candidate_images": ""} for text in ("sort rows", "sort columns")]
    asked = {"qid": "1", "query_text": "How do I sort rows?", "query_image": "", "ground_truth_position": 1}
    path.write_text(json.dumps({"extra_info": asked, "hit": hits}) + "\n")

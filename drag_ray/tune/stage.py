"""The tune stage: training questions are searched in every way that the index allows, and the best one is chosen."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drag_ray.agent.retrieval import find_vectors
from drag_ray.cluster.tasks import map_parts
from drag_ray.corpus.near_duplicates import read_near_duplicates
from drag_ray.corpus.questions import QUESTIONS_NAME, draw_questions, draw_split
from drag_ray.corpus.split import assign_splits
from drag_ray.errors import DataError
from drag_ray.search import vectors
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage import artifacts
from drag_ray.tune.choice import Part, choose
from drag_ray.tune.choice_folder import TABLE_NAME, build_rows, format_choice, write_choice
from drag_ray.tune.config import TuneSections
from drag_ray.tune.first_stages import FirstStage, RankEvidence, list_first_stages
from drag_ray.types import Question

_logger = logging.getLogger(__name__)

_NUM_AT_ONCE = 256
"""questions that a process searches for: it opens the index for them, and the model of its vectors"""


def run(sections: TuneSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Search for training questions in all ways and write `first_stages.jsonl` and `choice.json`.

    Returns:
        The numbers of questions that were chosen and checked by, what was chosen for a policy and for a reranker, and how many
        pages that reads.

    Raises:
        DataError: there is no training question with evidence, or a table cannot be read.
        SearchIndexError: the index or its vectors are damaged, or the vectors of another model.
        ConfigError: that model is gone, or the agent is to search by vectors, of which there are none.
    """
    settings, agent, index_dir = sections.tune, sections.agent, inputs["index"]
    find_vectors(index_dir, None, agent.retrieval, "agent.retrieval")
    has_vectors = vectors.has_vectors(index_dir / vectors.DIR_NAME)
    if not has_vectors:
        _logger.info("tune: the index has no vectors (embedding.model), so only searches by words are compared")
    stages = list_first_stages(agent, has_vectors)
    sides = divide_questions(index_dir, settings.limit, sections.seed, inputs.find("questions"))
    search = RankEvidence(index_dir, agent, stages)
    asked = [question for side in sides for question in side]
    ranks = list(map_parts(search, asked, _NUM_AT_ONCE, index_dir))
    first = len(sides[0])
    parts = _build_part(sides[0], stages, ranks[:first]), _build_part(sides[1], stages, ranks[first:])
    choice = choose(parts, stages, agent, settings.depth, sections.seed)
    rows = build_rows(parts, stages, agent.depth)
    artifacts.write_jsonl(folder.path / TABLE_NAME, rows)
    write_choice(folder.path, choice, agent, [len(side) for side in sides])
    _logger.info(format_choice(rows, choice, agent))
    return {
        "choosing_questions": len(sides[0]),
        "checking_questions": len(sides[1]),
        "shown": choice.shown.describe(),
        "candidates": choice.candidates.describe(),
        "depth": choice.depth.taken if choice.depth else settings.depth,
    }


def divide_questions(
    index_dir: Path, limit: int, seed: int, written_dir: Path | None = None
) -> tuple[list[Question], list[Question]]:
    """Training questions to choose by, and others to check by, which share no document, no group and no near-duplicate page.
    Raises DataError: there is none with evidence, or a table cannot be read."""
    train = draw_split(index_dir, "train", 0, seed, written_dir=written_dir)
    answerable = [question for question in train if question.evidence]
    if not answerable:
        raise DataError(
            f"{index_dir / QUESTIONS_NAME}: none of {len(train)} train questions has evidence, so no search can be chosen by "
            "them. See corpus.questions."
        )
    drawn = [replace(question, split="") for question in draw_questions(answerable, limit, seed)]
    divided = assign_splits(drawn, 0.5, seed, "document", read_near_duplicates(index_dir, drawn, written_dir))
    choosing, checking = ([question for question in divided if question.split == split] for split in ("train", "test"))
    return choosing, checking


def _build_part(questions: Sequence[Question], stages: Sequence[FirstStage], ranks: Sequence[Sequence[tuple[int, ...]]]) -> Part:
    return Part(questions, {stage: [found[place] for found in ranks] for place, stage in enumerate(stages)})

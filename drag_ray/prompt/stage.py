"""The prompt stage: the base model's instructions are optimised on training questions, as a baseline for training."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, pairwise
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from drag_ray import artifacts
from drag_ray.agent.prompts import choose_instructions
from drag_ray.agent.task import compute_seed
from drag_ray.corpus.near_duplicates import read_near_duplicates
from drag_ray.corpus.question_table import draw_split
from drag_ray.errors import DragRayError, EngineDiedError
from drag_ray.format.sides import read_side
from drag_ray.format.split import VALIDATION
from drag_ray.inputs import Inputs
from drag_ray.prompt.budget import count_collected
from drag_ray.prompt.config import PromptSections
from drag_ray.prompt.engines import JournaledEngine
from drag_ray.prompt.feedback import Outcome
from drag_ray.prompt.optimisation import Optimisation, optimise
from drag_ray.prompt.outcome import CANDIDATES_NAME, GEPA_LOG_NAME, JOURNAL_NAME, OptimisedPrompt, write_prompt
from drag_ray.prompt.questions import divide_questions
from drag_ray.prompt.worker import PromptWorker
from drag_ray.rollout import engine_logs
from drag_ray.rollout.folder import LOGS_DIR_NAME
from drag_ray.rollout.options import WorkerOptions, build_options
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import prepare_engines
from drag_ray.stage_folder import StageFolder
from drag_ray.types import Question

_logger = logging.getLogger(__name__)

_CLOSE_S = 30
_PRESET = "greedy"
"""As evaluations ask, so that what is optimised is what is compared."""


def run(sections: PromptSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Optimise the instructions and write `prompt.json` and `candidates.jsonl`. Going on after a kill repeats nothing.

    Returns:
        Counts: rollouts, failed ones of them, proposals, those of them that were validated, and the validation scores of the
        questions alone, the agent's own instructions and the best ones.

    Raises:
        ConfigError: there are too few rollouts for one proposal.
        DataError: there are too few train questions, or a table cannot be read.
        TooManyFailuresError: with the agent's own instructions more rollouts failed than `max_failure_rate` allows.
        EngineDiedError: an engine does not start, or answers no more.
    """
    settings, index_dir = sections.prompt, inputs["index"]
    train = draw_split(index_dir, "train", 0, sections.seed)
    near_duplicates = read_near_duplicates(index_dir, train)
    format_dir = inputs.find("format")
    held_out = read_side(format_dir, VALIDATION) if format_dir else set[str]()
    questions = divide_questions(train, settings.validation_questions, sections.seed, near_duplicates, held_out)
    max_rollouts = settings.rollouts or count_collected(inputs.find("collect"))
    with _Engines(sections, inputs, folder) as engines:
        journaled = JournaledEngine(engines, folder.path / JOURNAL_NAME)
        found = optimise(
            choose_instructions(sections.agent),
            journaled,
            questions,
            max_rollouts=max_rollouts,
            minibatch_size=settings.minibatch_size,
            max_failure_rate=sections.rollout.max_failure_rate,
            seed=sections.seed,
            log_path=folder.path / GEPA_LOG_NAME,
        )
    if journaled.num_replayed:
        _logger.info(f"prompt: {journaled.num_replayed} of {found.num_rollouts} rollouts were finished already")
    artifacts.write_jsonl(folder.path / CANDIDATES_NAME, found.log.to_dicts())
    prompt = _describe(found, max_rollouts, len(questions.validation), sections)
    write_prompt(folder.path, prompt)
    return {
        "rollouts": prompt.rollouts,
        "failed": prompt.failed_rollouts,
        "proposals": prompt.proposals,
        "accepted": prompt.accepted,
        "question_score": prompt.question_score,
        "own_score": prompt.own_score,
        "score": prompt.score,
    }


def _describe(found: Optimisation, max_rollouts: int, num_validation: int, sections: PromptSections) -> OptimisedPrompt:
    return OptimisedPrompt(
        instructions=found.instructions[found.best],
        own_instructions=found.instructions[0],
        score=found.scores[found.best],
        own_score=found.scores[0],
        question_score=found.question_score,
        num_validation_questions=num_validation,
        rollouts=found.num_rollouts,
        max_rollouts=max_rollouts,
        failed_rollouts=found.num_failed,
        proposals=found.log.num_proposals,
        accepted=found.log.num_accepted,
        model=sections.engine.model,
        query_mode=sections.agent.query_mode,
        protocol=sections.agent.protocol,
    )


class _Engines:
    """A `PromptEngine` on as many actors as rollouts have engines. They start when they are first asked, once for all.

    Use it as a context manager, which ends them.
    """

    def __init__(self, sections: PromptSections, inputs: Inputs, folder: StageFolder) -> None:
        engine = sections.engine.model_copy(update={"adapter": "", "logprobs": False})
        self._options = build_options(sections.agent, engine, sections.rollout, inputs["index"], folder.path)
        self._sections = sections
        self._actors: list[Any] = []

    def __enter__(self) -> "_Engines":
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(RayError):  # an actor that is gone needs no end
            ray.get([actor.close.remote() for actor in self._actors], timeout=_CLOSE_S)
        for actor in self._actors:
            ray.kill(actor)

    def roll_out(self, instructions: str, questions: Sequence[Question]) -> list[Outcome]:
        """As `PromptEngine.roll_out`, an equal share on each actor."""
        tasks, actors = build_plan(questions, (_PRESET,), 1, self._sections.seed), self._start()
        ends = [len(tasks) * number // len(actors) for number in range(len(actors) + 1)]
        shares = [tasks[first:end] for first, end in pairwise(ends)]
        answers = [actor.roll_out.remote(instructions, share) for actor, share in zip(actors, shares, strict=True) if share]
        return list(chain.from_iterable(self._get(answers)))

    def write(self, request: str, number: int) -> str | None:
        """As `PromptEngine.write`, on the first actor."""
        seed = compute_seed(self._sections.seed, f"prompt/{number}")
        [reply] = self._get([self._start()[0].write.remote(request, seed)])
        return reply

    def _start(self) -> list[Any]:
        if not self._actors:
            options, pool = prepare_engines(self._options, self._sections.rollout)
            make: Any = ray.remote(num_cpus=pool.num_cpus, num_gpus=pool.num_gpus)(_WorkerActor)
            arguments = (options, self._sections.prompt.page_chars, self._sections.prompt.max_tokens)
            self._actors = [make.remote(*arguments) for _ in range(pool.num_engines)]
            self._get([actor.start.remote() for actor in self._actors])
        return self._actors

    def _get(self, answers: Sequence[Any]) -> list[Any]:
        """What actors answer, and what they raise."""
        try:
            return ray.get(list(answers))
        except RayTaskError as error:
            if not isinstance(error.cause, DragRayError):
                raise
            if not isinstance(error.cause, EngineDiedError):
                raise type(error.cause)(str(error.cause)) from None
            reason = str(error.cause)
        except RayError as error:
            reason = str(error)
        raise EngineDiedError(
            f"an engine stopped ({reason.strip().splitlines()[-1]}). See {self._options.run_dir / LOGS_DIR_NAME} for its output. "
            "Starting the stage again goes on with what has not finished."
        )


class _WorkerActor:
    """A `PromptWorker` in a process of its own."""

    def __init__(self, options: WorkerOptions, page_chars: int, max_tokens: int) -> None:
        engine_logs.log_to_file(options.run_dir)
        self._arguments = (options, page_chars, max_tokens)

    async def start(self) -> None:
        """Start the engine; not while the actor is made, since Ray would wrap what goes wrong into a long report."""
        self._worker = PromptWorker(*self._arguments)

    async def close(self) -> None:
        self._worker.close()

    async def roll_out(self, *arguments: Any) -> list[Outcome]:
        return await self._worker.roll_out(*arguments)

    async def write(self, *arguments: Any) -> str | None:
        return await self._worker.write(*arguments)

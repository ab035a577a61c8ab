"""The prompt stage: the base model's instructions are optimised on training questions, as a baseline for training."""

import asyncio
import logging
import math
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from typing import Any

import ray
from ray.exceptions import RayError

from drag_ray.agent.action import collapse_spaces
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.retrieval import open_page_index
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import RolloutTask, compute_seed
from drag_ray.corpus.near_duplicates import NearDuplicates, read_near_duplicates
from drag_ray.corpus.questions import draw_questions, draw_split
from drag_ray.corpus.split import find_overlaps
from drag_ray.engine.generate import Request
from drag_ray.engine.reasoning import THINK, split_reasoning
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import DataError
from drag_ray.format.split import VALIDATION, read_side
from drag_ray.prompt.config import PromptConfig, PromptSections, count_collected
from drag_ray.prompt.optimisation import JournaledEngine, Outcome, build_outcome, optimise
from drag_ray.prompt.outcome import CANDIDATES_NAME, JOURNAL_NAME, write_prompt
from drag_ray.rollout.folder import list_changed_logs, log_to_file, read_log_changes
from drag_ray.rollout.options import WorkerOptions, build_options, locate_index, open_stores, start_engine
from drag_ray.rollout.plan import build_plan
from drag_ray.rollout.runner import find_reason, prepare_engines
from drag_ray.search.config import SYNTAX_HELP
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage import artifacts
from drag_ray.types import Question, Trajectory

_logger = logging.getLogger(__name__)

_CLOSE_S = 30
_PRESET, _PROPOSAL_PRESET = "greedy", "default"
"""As evaluations ask, so that what is optimised is what is compared; and how proposals are drawn."""


def run(sections: PromptSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Optimise the instructions and write `prompt.json` and `candidates.jsonl`. Going on after a kill repeats nothing.

    Returns:
        The counts and the scores of `OptimisedPrompt`.

    Raises:
        ConfigError: there are too few rollouts for one proposal.
        DataError: there are too few train questions, or a table cannot be read.
        TooManyFailuresError: with the agent's own instructions more rollouts failed than `max_failure_rate` allows.
        EngineDiedError: an engine does not start, or answers no more.
    """
    settings, index_dir, format_dir = sections.prompt, inputs["index"], inputs.find("format")
    written_dir = inputs.find("questions")
    train = draw_split(index_dir, "train", 0, sections.seed, written_dir=written_dir)
    near_duplicates = read_near_duplicates(index_dir, train, written_dir)
    held_out = read_side(format_dir, VALIDATION) if format_dir else set[str]()
    sets = divide_questions(train, settings.validation_questions, sections.seed, near_duplicates, held_out)
    max_rollouts = settings.rollouts or count_collected(inputs.find("collect"))
    with closing(_Engines(sections, inputs, folder)) as engines:
        journaled = JournaledEngine(engines, folder.path / JOURNAL_NAME)
        prompt, candidates = optimise(sections, journaled, *sets, max_rollouts)
    if journaled.num_replayed:
        _logger.info(f"prompt: {journaled.num_replayed} of {prompt.rollouts} rollouts were finished already")
    artifacts.write_jsonl(folder.path / CANDIDATES_NAME, candidates)
    write_prompt(folder.path, prompt)
    scores = {name: getattr(prompt, name) for name in ("proposals", "accepted", "question_score", "own_score", "score")}
    return {"rollouts": prompt.rollouts, "failed": prompt.failed_rollouts, **scores}


def divide_questions(
    questions: Sequence[Question], num_validation: int, seed: int, near_duplicates: NearDuplicates, held_out: Collection[str] = ()
) -> tuple[list[Question], list[Question]]:
    """The questions to reflect on, and those to choose by, drawn at random, half of all at most, which do not overlap.

    Args:
        questions: of the train split; those without evidence are left out, since nothing can be found for them.
        held_out: ids of those that training is validated on, which are left out with all that overlaps with them.

    Raises:
        DataError: nothing is left for one of the two.
    """

    def leave_out(some: Sequence[Question], others: Sequence[Question]) -> list[Question]:
        overlaps = find_overlaps(some, others, "question", near_duplicates)
        return [question for question in some if question.id not in overlaps]

    answerable = [question for question in questions if question.evidence]
    free = leave_out(answerable, [question for question in answerable if question.id in held_out])
    drawn = draw_questions(free, min(num_validation, len(free) // 2), seed) if len(free) > 1 else []
    feedback = leave_out(free, drawn)
    if not drawn or not feedback:
        raise DataError(
            f"{len(questions)} train questions, {len(answerable)} of them with evidence, {len(free)} of these apart from the "
            f"validation questions of training and {len(feedback)} of these on other pages than the {len(drawn)} to choose by: "
            "expected at least one to choose by and one more to make proposals from. Add questions, or lower "
            "prompt.validation_questions."
        )
    return feedback, drawn


class _Engines:
    """A `PromptEngine` on as many actors as rollouts have engines. They start when they are first asked, once for all."""

    def __init__(self, sections: PromptSections, inputs: Inputs, folder: StageFolder) -> None:
        engine = sections.engine.model_copy(update={"adapter": "", "logprobs": False})
        places = inputs["index"], folder.path, inputs.find("embed"), inputs.find("questions")
        self._options = build_options(sections.agent, engine, sections.rollout, *places)
        self._sections, self._actors = sections, list[Any]()
        self._earlier_logs = read_log_changes(folder.path)

    def close(self) -> None:
        with suppress(RayError):  # an actor that is gone needs no end
            ray.get([actor.close.remote() for actor in self._actors], timeout=_CLOSE_S)
        for actor in self._actors:
            ray.kill(actor)

    def roll_out(self, instructions: str, questions: Sequence[Question]) -> list[Outcome]:
        """As `PromptEngine`, an equal share on each actor."""
        tasks, actors = build_plan(questions, (_PRESET,), 1, self._sections.seed), self._start()
        share = math.ceil(len(tasks) / len(actors))
        places = zip(actors, range(0, len(tasks), share), strict=False)
        answers = [actor.roll_out.remote(instructions, tasks[first : first + share]) for actor, first in places]
        return [outcome for outcomes in self._get(answers) for outcome in outcomes]

    def write(self, request: str, number: int) -> str | None:
        """As `PromptEngine`, on the first actor."""
        return self._get([self._start()[0].write.remote(request, compute_seed(self._sections.seed, f"prompt/{number}"))])[0]

    def _start(self) -> list[Any]:
        if not self._actors:
            options, pool = prepare_engines(self._options, self._sections.rollout)
            make: Any = ray.remote(num_cpus=pool.num_cpus, num_gpus=pool.num_gpus)(PromptWorker)
            self._actors = [make.remote(options, self._sections.prompt) for _ in range(pool.num_engines)]
            self._get([actor.start.remote() for actor in self._actors])
        return self._actors

    def _get(self, answers: list[Any]) -> list[Any]:
        try:
            return ray.get(answers)
        except RayError as error:
            run_dir = self._options.run_dir
            raise find_reason(error, run_dir, list_changed_logs(run_dir, self._earlier_logs)) from error


class PromptWorker:
    """One engine with its index: rolls out questions with any instructions, many at once, and replies to other requests."""

    def __init__(self, options: WorkerOptions, settings: PromptConfig) -> None:
        self._options, self._settings = options, settings

    async def start(self) -> None:
        """Start the engine; not while an actor is made, since Ray would wrap what goes wrong into a long report."""
        options = self._options
        log_to_file(options.run_dir)
        self._generate = start_engine(options)
        self._searcher = Searcher(locate_index(options))
        index = open_page_index(self._searcher, options.agent.retrieval, options.vectors_dir, options.agent.dense_weight)
        self._environment = SearchEnvironment(index, options.agent.top_k, options.agent.depth)
        self._slots = asyncio.Semaphore(options.concurrent_rollouts)

    async def roll_out(self, instructions: str, tasks: Sequence[RolloutTask]) -> list[Outcome]:
        """The outcomes of these rollouts, in their order; one that fails is tried again as often as `max_tries` says."""
        agent, policy, record = self._options.agent.instruct(instructions), self._options.policies[""], self._searcher.record
        search = (self._environment, record.fingerprint, SYNTAX_HELP[record.syntax])
        images = open_stores(self._options)
        rollouts = Rollouts(agent, policy, self._generate, *search, pages=self._searcher, images=images)
        return await asyncio.gather(*(self._run(rollouts, task) for task in tasks))

    async def write(self, request: str, seed: int) -> str | None:
        """The reply to a request, without its reasoning; None if it ends within that."""
        messages = ({"role": "user", "content": request},)
        reply = await self._generate(Request(messages, PRESETS[_PROPOSAL_PRESET], self._settings.max_tokens, seed))
        return split_reasoning(THINK + reply.text if reply.in_reasoning else reply.text)[1]

    def close(self) -> None:
        """Stop the engine's processes, if it has any."""
        if isinstance(self._generate, VllmEngine):
            self._generate.close()

    async def _run(self, rollouts: Rollouts, task: RolloutTask) -> Outcome:
        async with self._slots:
            trajectory: Trajectory = await rollouts.run(task)
            for _ in range(1, self._options.max_tries if trajectory.error else 1):
                trajectory = await rollouts.run(task)
                if not trajectory.error:
                    break
        page = collapse_spaces(self._searcher.text(trajectory.evidence[0]))[: self._settings.page_chars]
        return build_outcome(trajectory, page)

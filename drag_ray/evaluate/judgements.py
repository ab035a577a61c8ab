"""The answers of an evaluation before its judge, and what comes of it. Each verdict is kept as soon as it is there.

A verdict belongs to a question, its gold answers and an answer, whichever policy gave it and in whichever evaluation.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from drag_ray.agent.answers import compute_anls
from drag_ray.appended_lines import append_line, read_lines
from drag_ray.artifacts import compute_fingerprint
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.endpoint import EndpointEngine
from drag_ray.engine.generate import GenerateFn, Request
from drag_ray.engine.reasoning import THINK
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.spending import SPENDING_NAME, Spending
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import RolloutError, TooManyFailuresError
from drag_ray.evaluate.config import JudgeConfig
from drag_ray.evaluate.judge import PROMPT, Verdict, parse_verdict, write_request
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.file_access import writing
from drag_ray.types import Trajectory

_logger = logging.getLogger(__name__)

JUDGE_DIR_NAME = "judge"
JUDGEMENTS_NAME = "judgements.jsonl"


@dataclass(frozen=True, slots=True)
class Case:
    """What is judged: an answer to a question whose gold answers are known."""

    question: str
    gold_answers: tuple[str, ...]
    answer: str

    @property
    def key(self) -> str:
        """Stands for the case."""
        return compute_fingerprint(self.question, self.gold_answers, self.answer)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A line of `judgements.jsonl`. `verdict` is empty where the reply holds none; `judge` stands for who was asked, and how."""

    judge: str
    case: str
    question: str
    answer: str
    verdict: str
    reply: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Judgements:
    """The judgements of one judge, by the keys of their cases."""

    by_case: Mapping[str, Judgement] = field(default_factory=dict)

    def list_judges(self) -> set[str]:
        """Who was asked, and how, as `fingerprint_judge` says it."""
        return {one.judge for one in self.by_case.values()}

    def find_score(self, case: Case) -> float | None:
        """What the verdict is worth; None without one."""
        judgement = self.by_case.get(case.key)
        return Verdict(judgement.verdict).score if judgement and judgement.verdict else None

    def describe(self, config: JudgeConfig) -> str:
        """Who judged, how many verdicts there are, and what they took."""
        found = list(self.by_case.values())
        read, written = sum(one.prompt_tokens for one in found), sum(one.completion_tokens for one in found)
        cost = config.engine.endpoint.compute_cost(read, written)
        return (
            f"Answers were judged by {config.engine.model}, as correct, partial or incorrect (1, .5, 0): {len(found):,} replies, "
            f"{sum(not one.verdict for one in found)} of them without a verdict; {read:,} tokens read, {written:,} written"
            f"{f', cost {cost:.4g}' if cost else ''}. Answers like a gold answer (ANLS* 1) are correct and empty ones "
            "incorrect without being judged; those without a verdict are left out."
        )


def fingerprint_judge(config: JudgeConfig) -> str:
    """Stands for all that a verdict depends on beside its case."""
    engine = config.engine.model_dump(mode="json", include={"backend", "endpoint", "model", "adapter", "dtype", "max_model_len"})
    return compute_fingerprint(PROMPT, engine, config.max_tokens)


def build_case(trajectory: Trajectory) -> Case | None:
    """What there is to judge of a rollout; None where that is known without a judge, or by no one."""
    answer, gold = trajectory.final_answer, trajectory.answers
    if trajectory.error or not gold or not answer.strip() or compute_anls(answer, gold) == 1:
        return None
    return Case(trajectory.question, gold, answer)


def judge_answers(
    trajectories: Mapping[str, Sequence[Trajectory]],
    config: JudgeConfig,
    folder: Path,
    earlier: Iterable[Path] = (),
    max_failure_rate: float = 0.2,
) -> Judgements:
    """Have the answers of all policies judged, each once; those that were judged before, here or in `earlier`, are not again.

    Args:
        trajectories: of each policy.
        config: the judge.
        folder: where judgements are kept.
        earlier: such folders.
        max_failure_rate: share of requests that may fail; what has failed has no verdict.

    Raises:
        BudgetError: what its replies may cost is spent; the verdicts so far are kept.
        TooManyFailuresError: more requests failed.
        ConfigError: the engine cannot be made.
    """
    found = (build_case(rollout) for rollouts in trajectories.values() for rollout in rollouts)
    cases = {case.key: case for case in found if case}
    judge = fingerprint_judge(config)
    known = {one.case: one for path in (*earlier, folder) for one in _read_all(path) if one.judge == judge}
    pending = [case for key, case in cases.items() if key not in known]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for taken in known.keys() & cases.keys() - {one.case for one in _read_all(folder)}:
        append_line(folder / JUDGEMENTS_NAME, asdict(known[taken]))
    if pending:
        _logger.info(f"judging: {len(pending)} answers by {config.engine.model}, {len(cases) - len(pending)} known")
        asyncio.run(_judge_all(pending, config, folder, max_failure_rate))
    return read_judgements(folder, judge)


def read_judgements(folder: Path, judge: str = "") -> Judgements:
    """The judgements of a folder by one judge, or all where a folder has those of one alone."""
    return Judgements({one.case: one for one in _read_all(folder) if not judge or one.judge == judge})


def apply_judgements(
    results: Mapping[str, Sequence[QuestionResult]],
    trajectories: Mapping[str, Sequence[Trajectory]],
    judgements: Judgements,
) -> dict[str, list[QuestionResult]]:
    """The results with what each answer is worth to the judge."""
    applied = {}
    for policy, rows in results.items():
        rollouts = {rollout.question_id: rollout for rollout in trajectories[policy]}
        applied[policy] = [_apply(row, rollouts.get(row.question_id), judgements) for row in rows]
    return applied


def _apply(result: QuestionResult, rollout: Trajectory | None, judgements: Judgements) -> QuestionResult:
    if result.anls is None:
        return result
    case = build_case(rollout) if rollout else None
    if case is None:
        return replace(result, semantic=float(result.anls == 1))
    score = judgements.find_score(case)
    return replace(result, semantic=score, is_unjudged=score is None)


async def _judge_all(cases: Sequence[Case], config: JudgeConfig, folder: Path, max_failure_rate: float) -> None:
    async with _open_engine(config.engine, folder) as generate:
        judged = await asyncio.gather(*(_judge(case, config, folder, generate) for case in cases), return_exceptions=True)
    failures = Counter(f"{type(one).__name__}: {one}" for one in judged if isinstance(one, RolloutError))
    for one in judged:
        if isinstance(one, BaseException) and not isinstance(one, RolloutError):
            raise one
    if failures.total() > max_failure_rate * len(cases):
        raise TooManyFailuresError(
            f"{failures.total()} of {len(cases)} requests to the judge failed, more than max_failure_rate "
            f"{max_failure_rate:.0%}; most often {failures.most_common(1)[0][0][:300]}. "
            "Mend the cause and start again: verdicts so far are kept."
        )
    if failures:
        _logger.warning(
            f"judging: {failures.total()} requests failed, whose answers have no verdict: {failures.most_common(1)[0][0][:300]}"
        )


async def _judge(case: Case, config: JudgeConfig, folder: Path, generate: GenerateFn) -> None:
    content = write_request(case.question, case.gold_answers, case.answer)
    generation = await generate(Request(({"role": "user", "content": content},), PRESETS["greedy"], config.max_tokens, 0))
    verdict = parse_verdict(THINK + generation.text if generation.in_reasoning else generation.text)
    usage = generation.usage
    said = (verdict or "", generation.text, usage.num_prompt_tokens, usage.num_completion_tokens)
    judgement = Judgement(fingerprint_judge(config), case.key, case.question, case.answer, *said)
    append_line(folder / JUDGEMENTS_NAME, asdict(judgement))


@contextlib.asynccontextmanager
async def _open_engine(config: EngineConfig, folder: Path) -> AsyncGenerator[GenerateFn]:
    if config.backend == "openai":
        endpoint = EndpointEngine(config, None, Spending(folder / SPENDING_NAME, config.endpoint))
        try:
            yield endpoint
        finally:
            await endpoint.close()
        return
    engine = VllmEngine(config, adapters=[config.adapter] if config.adapter else [])
    try:
        yield engine
    finally:
        engine.close()


def _read_all(folder: Path) -> list[Judgement]:
    return [Judgement(**line) for line in read_lines(folder / JUDGEMENTS_NAME)]

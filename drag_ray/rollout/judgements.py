"""Judgements of cases, by whom and about what. Each verdict is kept as soon as it is there.

A verdict belongs to a case, such as a question with its gold answers and an answer, whichever policy gave it and in whichever
evaluation or collection.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from drag_ray.agent.judge import AnswerCase, Case
from drag_ray.cluster.nodes import free_gpus, takes_gpus
from drag_ray.cluster.tasks import run_task
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.endpoints.completion import Tokens
from drag_ray.engine.endpoints.endpoint import EndpointEngine
from drag_ray.engine.endpoints.spending import SPENDING_NAME, Spending
from drag_ray.engine.generate import GenerateFn, Request
from drag_ray.engine.models.adapter import ADAPTER_CONFIG_NAME, ADAPTER_WEIGHTS_NAME
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import RolloutError, TooManyFailuresError
from drag_ray.rollout.config import JudgeConfig
from drag_ray.storage.appended_lines import append_line, read_lines
from drag_ray.storage.artifacts import PREVIOUS_DIR_NAME, compute_file_fingerprint, compute_fingerprint
from drag_ray.storage.file_access import writing

_logger = logging.getLogger(__name__)

JUDGE_DIR_NAME = "judge"
JUDGEMENTS_NAME = "judgements.jsonl"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A line of `judgements.jsonl`.

    `answer` is what was judged of the case, `verdict` is empty where the reply holds none; `judge` stands for who was asked, and
    how.
    """

    judge: str
    case: str
    question: str
    answer: str
    verdict: str
    reply: str
    prompt_tokens: Tokens
    completion_tokens: Tokens


_JUDGEMENT = TypeAdapter(Judgement)


@dataclass(frozen=True)
class Judgements:
    """The judgements of one judge about cases of one kind, by their keys."""

    by_case: Mapping[str, Judgement] = field(default_factory=dict)

    def list_judges(self) -> set[str]:
        """The judges that were asked, and how, as `fingerprint_judge` says it."""
        return {one.judge for one in self.by_case.values()}

    def find_score(self, case: Case) -> float | None:
        """The score of the verdict; None without one."""
        judgement = self.by_case.get(case.key)
        return case.score(judgement.verdict) if judgement and judgement.verdict else None

    def describe(self, config: JudgeConfig) -> str:
        """A description of who judged, how many verdicts there are, and what they took."""
        found = list(self.by_case.values())
        read, written = sum(one.prompt_tokens for one in found), sum(one.completion_tokens for one in found)
        cost = config.engine.endpoint.compute_cost(read, written)
        return (
            f"Answers were judged by {config.engine.model}, as correct, partial or incorrect (1, .5, 0): {len(found):,} replies, "
            f"{sum(not one.verdict for one in found)} of them without a verdict; {read:,} tokens read, {written:,} written"
            f"{f', cost {cost:.4g}' if cost else ''}. Answers like a gold answer (ANLS* 1) are correct and empty ones "
            "incorrect without being judged; those without a verdict are left out."
        )


def fingerprint_judge(config: JudgeConfig, kind: type[Case] = AnswerCase) -> str:
    """Stands for all that a verdict depends on beside its case, of a kind. Raises ArtifactError where the judge is to write with
    an adapter that cannot be read."""
    engine = config.engine.model_dump(mode="json", include={"backend", "endpoint", "model", "adapter", "dtype", "max_model_len"})
    if adapter := config.engine.adapter:  # another one may lie in the folder of the one before
        names = (ADAPTER_CONFIG_NAME, ADAPTER_WEIGHTS_NAME)
        engine["adapter"] = [compute_file_fingerprint(Path(adapter, name)) for name in names]
    return compute_fingerprint(kind.PROMPT, engine, config.max_tokens)


def judge_cases(
    cases: Sequence[Case], config: JudgeConfig, folder: Path, earlier: Iterable[Path] = (), max_failure_rate: float = 0.2
) -> None:
    """Have cases judged, each once; those that were judged before, here or in `earlier`, are not again.

    Args:
        cases: of one kind or of several.
        config: the judge.
        folder: where judgements are kept; see `read_judgements`.
        earlier: such folders.
        max_failure_rate: share of requests that may fail; what has failed has no verdict.

    Raises:
        BudgetError: what its replies may cost is spent; the verdicts so far are kept.
        TooManyFailuresError: more requests failed.
        ConfigError: the engine cannot be made.
        ArtifactError: its adapter cannot be read.
    """
    judges = {kind: fingerprint_judge(config, kind) for kind in {type(case) for case in cases}}
    named = {(judges[type(case)], case.key): case for case in cases}
    known = {(one.judge, one.case): one for path in (*earlier, folder) for one in _read_all(path)}
    pending = [case for name, case in named.items() if name not in known]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for taken in known.keys() & named.keys() - {(one.judge, one.case) for one in _read_all(folder)}:
        append_line(folder / JUDGEMENTS_NAME, asdict(known[taken]))
    if pending:
        _logger.info(f"judging: {len(pending)} by {config.engine.model}, {len(named) - len(pending)} known")
        asyncio.run(_judge_all(pending, judges, config, folder, max_failure_rate))


def judge_on_cluster(cases: Sequence[Case], config: JudgeConfig, stage_dir: Path, max_failure_rate: float) -> float:
    """Have the cases of a stage judged, as `judge_cases` does: here by an endpoint, by a local model in a process with its GPUs.

    Judgements are kept in `judge/` of the stage's folder, and taken from those that were set aside. Returns what the endpoint's
    replies have cost, over all starts of the stage.
    """
    folder = stage_dir / JUDGE_DIR_NAME
    earlier = sorted((stage_dir.parent / PREVIOUS_DIR_NAME).glob(f"{stage_dir.name}-*/{JUDGE_DIR_NAME}"))
    call, engine = (cases, config, folder, earlier, max_failure_rate), config.engine
    if engine.backend == "openai":
        judge_cases(*call)
        return Spending(folder / SPENDING_NAME, engine.endpoint).compute_cost()
    gpus = engine.tensor_parallel_size if engine.tensor_parallel_size > 1 else free_gpus()
    run_task(judge_cases, call, num_gpus=gpus if takes_gpus(engine.device) else 0)
    return 0.0


def read_judgements(folder: Path, judge: str = "") -> Judgements:
    """The judgements of a folder by one judge, or all where a folder has those of one alone."""
    return Judgements({one.case: one for one in _read_all(folder) if not judge or one.judge == judge})


async def _judge_all(
    cases: Sequence[Case], judges: Mapping[type[Case], str], config: JudgeConfig, folder: Path, max_failure_rate: float
) -> None:
    async with _open_engine(config.engine, folder) as generate:
        verdicts = (_judge(case, judges[type(case)], config.max_tokens, folder, generate) for case in cases)
        judged = await asyncio.gather(*verdicts, return_exceptions=True)
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
            f"judging: {failures.total()} requests failed, whose cases have no verdict: {failures.most_common(1)[0][0][:300]}"
        )


async def _judge(case: Case, judge: str, max_tokens: int, folder: Path, generate: GenerateFn) -> None:
    request = Request(({"role": "user", "content": case.write_request()},), PRESETS["greedy"], max_tokens, 0)
    generation = await generate(request)
    verdict = case.parse(generation.full_text)
    usage = generation.usage
    said = (verdict, generation.text, usage.num_prompt_tokens, usage.num_completion_tokens)
    append_line(folder / JUDGEMENTS_NAME, asdict(Judgement(judge, case.key, case.question, case.judged, *said)))


@contextlib.asynccontextmanager
async def _open_engine(config: EngineConfig, folder: Path) -> AsyncGenerator[GenerateFn]:
    if config.backend == "openai":
        endpoint = EndpointEngine(config, None, Spending(folder / SPENDING_NAME, config.endpoint))
        try:
            yield endpoint
        finally:
            await endpoint.close()
        return
    with contextlib.closing(VllmEngine(config, adapters=[config.adapter] if config.adapter else [])) as engine:
        yield engine


def _read_all(folder: Path) -> list[Judgement]:
    return read_lines(folder / JUDGEMENTS_NAME, _JUDGEMENT)

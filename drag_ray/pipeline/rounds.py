"""Rounds of collecting and training: each begins with the policy of the one before, and the best one is what is evaluated.

Which round is best is decided by questions of the train part that all rounds held out (the format stage's validation side) and
none trained on. The test questions are asked once, at the end. A single pass is one round without that choice. Either trains an
embedding model and a reranker beside the policy where they are wanted, from the same questions, in folders of their own, and
evaluates them with it: first what makes vectors, whose candidates the reranker then learns from.
"""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from drag_ray.baselines.dense import Dense, Hybrid, IndexDense, IndexHybrid
from drag_ray.baselines.question import RawQuestion
from drag_ray.baselines.rerank import Rerank, RerankedConfig
from drag_ray.collect.config import CollectSections
from drag_ray.config import override
from drag_ray.engine.models.adapter import list_unserved
from drag_ray.errors import ConfigError
from drag_ray.evaluate.config import VALIDATION
from drag_ray.evaluate.evaluation_folder import read_results
from drag_ray.evaluate.history import RoundEvaluation, RoundResult, choose_best, compare_rounds, format_history
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.training_folder import ADAPTER_DIR_NAME, ENCODER_DIR_NAME
from drag_ray.format.split import TRAIN, read_side
from drag_ray.pipeline.reinforcement import build_reinforcement, check_shapes, locate_adapter, reinforce
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import check_stages, list_pipeline, run_stages
from drag_ray.pipeline.stages import STAGES, Stage
from drag_ray.stage_runs.address import Address
from drag_ray.storage.artifacts import Manifest, is_begun, write_json

_logger = logging.getLogger(__name__)

HISTORY_NAME = "history"
_SCOPE = "rounds"
_TRAINED = ("index", "collect", "process", "format", "finetune")
_RERANKER_STAGES = [STAGES["format"], STAGES["finetune"]]
_RERANKER_OPTIONS: dict[str, dict[str, Any]] = {
    # Who ranks adds the adapter to the model by itself.
    "llm": {"method": "rerank", "epochs": 1, "merge": False},
    "cross_encoder": {"method": "cross_encoder", "epochs": 1, "batch_size": 8, "learning_rate": 1e-4},
}
"""Of the finetune stage, by the kind of the reranker."""
_OWN_DATA: dict[str, Any] = {"data": "", "validation_data": ""}
"""What a policy may learn from, and no ranker."""
_WITHOUT_ADAPTER: dict[str, Any] = {"lora": {}, "quantization": "none"}
"""The options of an encoder's training where the policy has an adapter."""
_EMBEDDER_STAGES = [STAGES["format"], STAGES["finetune"], STAGES["embed"]]
_EMBEDDER_OPTIONS: dict[str, Any] = {"method": "embed", "epochs": 1, "batch_size": 32, "learning_rate": 5e-5}


def build_reranker_training(config: RunConfig, process: Address) -> RunConfig:
    """The options of its rows and its training: those of the run with what makes it a reranker, and above them `reranker`. Raises
    ConfigError where `reranker` sets an option that there is not, or has another method trained, or cannot be trained so."""
    kind = config.train_reranker
    training = _build_training(config, "reranker", _RERANKER_OPTIONS[kind], f"train_reranker {kind}", process)
    check_stages(_RERANKER_STAGES, training)
    return training


def build_embedder_training(config: RunConfig, process: Address) -> RunConfig:
    """The options of an embedding model's rows, its training and the vectors that it makes, as `build_reranker_training`. Raises
    ConfigError where `embedder` sets an option that there is not, has another method trained or cannot be trained so, or windows
    are longer than what the model reads."""
    training = _build_training(config, "embedder", _EMBEDDER_OPTIONS, "train_embedder", process)
    window, read = training.embedding.window_tokens, training.finetune.embed.max_tokens
    if window > read:
        raise ConfigError(
            f"embedding.window_tokens {window}: the embedding model that is trained reads {read} tokens at once "
            f"(finetune.embed.max_tokens). Set one of them in `embedder`, as {{embedding = {{window_tokens = {read}}}}}."
        )
    check_stages(_EMBEDDER_STAGES, training)
    return training


def _build_training(config: RunConfig, ranker: str, options: dict[str, Any], switch: str, process: Address) -> RunConfig:
    """The options of a ranker's rows and training, in a scope of its name."""
    left_out = _OWN_DATA if getattr(config.finetune, options["method"]).trains_adapter else _OWN_DATA | _WITHOUT_ADAPTER
    changed = config.model_copy(update={"finetune": config.finetune.model_copy(update=left_out)})
    changed = override(changed, {"format": {"formats": ["relevance"]}, "finetune": options})
    changed = override(changed, getattr(config, ranker), ranker)
    if changed.finetune.method != options["method"]:
        raise ConfigError(
            f"{ranker}: finetune.method {changed.finetune.method} is not what {switch} trains. "
            f"Leave it out there: it is {options['method']}."
        )
    reads = [entry for entry in config.reads if entry.partition("=")[0] not in ("process", "format", "finetune")]
    # It starts from the model itself: what a policy has learned is to write.
    engine = changed.engine.model_copy(update={"adapter": ""})
    return changed.model_copy(
        update={"scope": _find_scope(config, ranker), "reads": (*reads, f"process={process}"), "engine": engine}
    )


def read_embedder(config: RunConfig) -> RunConfig:
    """The options with which what comes after the embedding model searches by its vectors, and evaluates them: `dense` and what
    the options name beside it, and the same by the index's own where it has some."""
    reads = [entry for entry in config.reads if entry.partition("=")[0] != "embed"]
    address = Address("embed", scope=_find_scope(config, "embedder"))
    baselines = list(dict.fromkeys((*config.evaluate.baselines, Dense.name)))
    own = {Dense.name: IndexDense.name, Hybrid.name: IndexHybrid.name} if config.embedding.model else {}
    baselines += [own[name] for name in baselines if name in own and own[name] not in baselines]
    evaluate = config.evaluate.model_copy(update={"baselines": tuple(baselines)})
    return config.model_copy(update={"reads": (*reads, f"embed={address}"), "evaluate": evaluate})


def build_reranked_evaluation(config: RunConfig) -> RunConfig:
    """The options of an evaluation that has the reranker too. Raises ConfigError where they name another one, or a stage that
    compares cannot be run with it."""
    settings = config.evaluate
    options = settings.take(RerankedConfig)
    if options.model:
        raise ConfigError(
            f"evaluate.rerank.model {options.model!r}: the pipeline trains one itself (reranker), which is evaluated. Leave one "
            "of them out."
        )
    finetune_dir = Address("finetune", scope=_find_scope(config, "reranker")).locate(config.run_dir)
    folder = (finetune_dir / (ADAPTER_DIR_NAME if config.train_reranker == "llm" else ENCODER_DIR_NAME)).resolve()
    baselines = settings.baselines if Rerank.name in settings.baselines else (*settings.baselines, Rerank.name)
    update = {"baselines": baselines, "rerank": options.model_copy(update={"model": str(folder)})}
    evaluation = config.model_copy(update={"evaluate": settings.model_copy(update=update)})
    check_stages([STAGES["evaluate"]], evaluation)
    return evaluation


@dataclass(frozen=True)
class Rankers:
    """The rankers that are trained beside a policy: the options of their training, in order, and those of what compares them."""

    trainings: list[tuple[list[Stage], RunConfig]]
    compared: RunConfig

    def train(self, start_ray: Callable[[], object]) -> dict[str, Manifest]:
        """Write their rows and train them; what is finished is skipped."""
        finished: dict[str, Manifest] = {}
        for stages, training in self.trainings:
            finished |= run_stages(stages, training, start_ray)
        return finished


def check_pipeline(config: RunConfig) -> None:
    """ConfigError where a stage of the pipeline cannot be run with these options, in any of its rounds."""
    rounds = [build_round(config, number) for number in range(1, config.rounds + 1)]
    begun = rounds[:-1] if not config.reinforce else rounds or [config]
    for own in begun:
        _refuse_unserved(own.finetune)
    for own in rounds:
        check_stages([STAGES[name] for name in _TRAINED], own)
    check_stages([STAGES["evaluate"]] if config.rounds else list_pipeline(config), config)
    plan_rankers(config, Address("process", scope=f"{_SCOPE}/1" if config.rounds else config.scope))
    if config.reinforce:
        build_reinforcement(config, Address("finetune", scope=config.scope))
        check_shapes(config, rounds)


def _refuse_unserved(settings: FinetuneConfig) -> None:
    """Refuse a training after which there is no adapter that an engine writes with, where a round or rl begins with one."""
    unserved = list_unserved(settings.lora)
    if settings.parts != ("adapter",) or unserved:
        given = f"finetune.lora: {unserved[0]}" if unserved else f"finetune.parts {', '.join(settings.parts)}"
        raise ConfigError(
            f"{given}: its result is a whole model, but the next round, or rl, starts from an adapter. Train it without rounds "
            "and reinforce, and continue from it: --scope NAME --reads index=index --engine.model RUN/finetune/model"
        )


def plan_rankers(config: RunConfig, process: Address) -> Rankers:
    """The rankers that a run wants, none or one of each kind. Raises ConfigError where one of them cannot be trained, or
    evaluated, so."""
    trainings: list[tuple[list[Stage], RunConfig]] = []
    config = _keep_vectors(config)
    if config.train_embedder:
        trainings.append((_EMBEDDER_STAGES, build_embedder_training(config, process)))
        config = read_embedder(config)
    if config.train_reranker:
        trainings.append((_RERANKER_STAGES, build_reranker_training(config, process)))
        config = build_reranked_evaluation(config)
    return Rankers(trainings, config)


def _keep_vectors(config: RunConfig) -> RunConfig:
    """The options with which stages in other scopes search by the vectors that those of the run's own do, if it has embedded
    pages again. What is trained of such vectors is not among them: its rows would depend on itself."""
    if any(entry.partition("=")[0] == "embed" for entry in config.reads):
        return config
    return config.model_copy(update={"reads": (*config.reads, f"embed={Address('embed', scope=config.scope)}")})


def _find_scope(config: RunConfig, ranker: str) -> str:
    return "/".join(part for part in (config.scope, ranker) if part)


def run_pass(config: RunConfig, start_ray: Callable[[], object] = lambda: None) -> dict[str, Manifest]:
    """Run every stage once; what is finished is skipped. Returns the manifests of all stages, by their addresses. Raises
    ConfigError where a stage cannot be run with these options; then none has been."""
    check_pipeline(config)
    rankers = plan_rankers(config, Address("process", scope=config.scope))
    if not (rankers.trainings or config.reinforce):
        return run_stages(list_pipeline(config), config, start_ray)
    evaluate = STAGES["evaluate"]
    finished = run_stages([stage for stage in list_pipeline(config) if stage is not evaluate], config, start_ray)
    reinforced, final = reinforce(config, rankers.compared, Address("finetune", scope=config.scope), start_ray)
    finished |= reinforced | rankers.train(start_ray)
    return finished | run_stages([evaluate], final, start_ray)


def run_rounds(config: RunConfig, start_ray: Callable[[], object] = lambda: None) -> dict[str, Manifest]:
    """Run `config.rounds` rounds, then evaluate the best one on the test questions; what is finished is skipped.

    Writes `rounds/history.json`, a row a round. Returns the manifests of all stages, by their addresses. Raises ConfigError where
    the curriculum, `embedder` or `reranker` sets an option that there is not, or a round's method trains no policy.
    """
    check_pipeline(config)
    configs = [build_round(config, number) for number in range(1, config.rounds + 1)]
    rankers = plan_rankers(config, Address("process", scope=f"{_SCOPE}/1"))
    evaluations: list[RoundEvaluation] = []
    history: list[RoundResult] = []
    # Questions are written by the model that the run begins with, not by that of a round.
    before = [stage for stage in list_pipeline(config) if stage.name in ("index", "questions")]
    finished = run_stages(before, config, start_ray)
    for number, round_config in enumerate(configs, start=1):
        finished |= run_stages([STAGES[name] for name in _TRAINED], round_config, start_ray)
        finished |= run_stages([STAGES["evaluate"]], build_validation(round_config), start_ray)
        evaluations.append(_read_evaluation(round_config, number))
        history = compare_rounds(evaluations)
        write_json(config.run_dir / _SCOPE / f"{HISTORY_NAME}.json", [asdict(result) for result in history])
    _logger.info(format_history(history))
    best = choose_best(history)
    _logger.info(f"round {best.number} has the best {best.chosen_by} on the validation questions; it is evaluated")
    start = Address("finetune", scope=f"{_SCOPE}/{best.number}")
    reinforced, final = reinforce(config, build_final(rankers.compared, best.number), start, start_ray)
    finished |= reinforced | rankers.train(start_ray)
    return finished | run_stages([STAGES["evaluate"]], final, start_ray)


def start_engines_early(config: RunConfig) -> None:
    """Have the engines of the first collection start while the index is built, where that needs no GPU and nobody else wants
    engines before."""
    from drag_ray.rollout.runner import start_engines

    embeds = config.embedding.model or config.image_embedding.model
    if not (config.writes_questions or embeds or is_begun(Address("index").locate(config.run_dir))):
        first = build_round(config, 1) if config.rounds else config
        start_engines(first.agent, first.take(CollectSections).writer, first.rollout, config.run_dir)


def build_round(config: RunConfig, number: int) -> RunConfig:
    """The options of a round: those of its entry in the curriculum, the policy of the round before, and a scope of its own.
    Raises ConfigError where the curriculum sets an option that there is not, a reward model is to be trained, or a teacher is to
    collect after the first round.

    Args:
        config: of the run.
        number: 1-based.
    """
    entry = config.curriculum[min(number, len(config.curriculum)) - 1] if config.curriculum else {}
    changed = override(config, entry, f"curriculum, entry {min(number, len(config.curriculum))}")
    if not changed.finetune.chosen_method.trains_policy:
        raise ConfigError(
            f"curriculum: finetune.method {changed.finetune.method} trains no policy, so no round can start from its result."
        )
    engine = changed.engine
    if number > 1:
        if changed.collect.teacher:
            raise ConfigError(
                f"collect.teacher: round {number} collects with the policy of the previous round. Set it only in the first "
                "entry of the curriculum."
            )
        before = Address("finetune", scope=f"{_SCOPE}/{number - 1}")
        engine = engine.model_copy(update={"adapter": str(locate_adapter(config, before))})
    return _keep_vectors(changed).model_copy(update={"scope": f"{_SCOPE}/{number}", "engine": engine})


def build_validation(round_config: RunConfig) -> RunConfig:
    """The options of a round's evaluation: the question, the base model and the round's own policy, on the questions kept for
    validation. What else is compared is left to the run's own evaluation."""
    asked = {"split": VALIDATION, "limit": 0, "baselines": (RawQuestion.name,), "adapters": (), "question_weights": ()}
    evaluate = round_config.evaluate.model_copy(update=asked)
    engine = round_config.engine.model_copy(update={"adapter": ""})
    return round_config.model_copy(update={"evaluate": evaluate, "engine": engine})


def build_final(config: RunConfig, best: int) -> RunConfig:
    """The options of the run's own evaluation, of the policy of the best round."""
    reads = [entry for entry in config.reads if entry.partition("=")[0] not in ("finetune", "format")]
    reads += [f"{stage}={Address(stage, scope=f'{_SCOPE}/{best}')}" for stage in ("finetune", "format")]
    return config.model_copy(update={"reads": tuple(reads)})


def _read_evaluation(round_config: RunConfig, number: int) -> RoundEvaluation:
    evaluated, formatted = (
        Address(stage, scope=round_config.scope).locate(round_config.run_dir) for stage in ("evaluate", "format")
    )
    return RoundEvaluation(number, round_config.finetune.method, read_results(evaluated), read_side(formatted, TRAIN))

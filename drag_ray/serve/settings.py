"""Settings of an endpoint: its options, and the files of the run that they mean, checked to fit together beforehand."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.prompts import list_shown_functions
from drag_ray.agent.record import AgentRecord
from drag_ray.agent.retrieval import find_vectors
from drag_ray.baselines.feature_model import describe_other_features, read_features
from drag_ray.cluster.telemetry import TelemetryConfig
from drag_ray.corpus import image_store, question_images
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import THINK
from drag_ray.engine.models.chat_template import check_functions_shown
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.errors import ConfigError, ServeError
from drag_ray.evaluate.evaluation_folder import read_question_weights
from drag_ray.feedback.ledger import Trial
from drag_ray.feedback.log import DIR_NAME as FEEDBACK_DIR_NAME
from drag_ray.feedback.log import make_secret
from drag_ray.search.index import read_fingerprint
from drag_ray.search.metadata import read_access_column
from drag_ray.serve.adapters.adapter_files import (
    compute_max_lora_rank,
    read_adapters,
    resolve_adapter_dirs,
    resolve_adapters,
    say_other_origins,
)
from drag_ray.serve.config import AUTO, ServeConfig, ServeSections
from drag_ray.serve.ingress.key import Key, KeyHash, check_groups, hash_key
from drag_ray.serve.trial_settings import open_trial
from drag_ray.stage_runs.damage import refuse_damage
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import require_manifest


@dataclass(frozen=True)
class Family:
    """Models that write tool calls in one form, by a mark in their chat templates that no family after it in `FAMILIES` has, and
    vLLM's parsers of their calls and, if known, of their reasoning."""

    mark: str
    tool_calls: str
    reasoning: str = ""


FAMILIES = (
    Family("<function=", "qwen3_coder", "qwen3"),
    Family("<arg_key>", "glm45", "glm45"),
    Family("tool▁calls▁begin", "deepseek_v3", "deepseek_r1"),
    Family("<|tool_calls_section_begin|>", "kimi_k2", "kimi_k2"),
    Family("[TOOL_CALLS]", "mistral"),
    Family("<|python_tag|>", "llama3_json"),
    Family("<tool_call>", "hermes", "qwen3"),  # Qwen2.5, Qwen3, Qwen3-VL
)
TRAINED_TOOL_CALLS = "hermes"
"""Of the calls that `agent.protocol` tools teaches any model."""


@dataclass(frozen=True)
class Parsers:
    """Names of vLLM's parsers; empty for what is not read, which then stands in the text of a reply."""

    tool_calls: str = ""
    reasoning: str = ""

    def describe(self) -> str:
        """The parsers, in a line."""
        tool_calls = f"read by {self.tool_calls}" if self.tool_calls else "left in the text (serve.tool_call_parser)"
        reasoning = f"read by {self.reasoning}" if self.reasoning else "left in the text (serve.reasoning_parser)"
        return f"in replies to chats, tool calls are {tool_calls}, reasoning is {reasoning}"


def choose_parsers(config: ServeConfig, template: str, reasons: bool, records: Iterable[AgentRecord]) -> Parsers:
    """The parsers that the options name, or those of the model's family, which its chat template shows. One endpoint has one
    parser for all of its models, so what the adapters of the records learned goes before. Raises ServeError where vLLM has no
    parser of this name."""
    family = next((family for family in FAMILIES if family.mark in template), Family("", ""))
    agents = [record.agent for record in records]
    tool_calls = TRAINED_TOOL_CALLS if any(agent.protocol == "tools" for agent in agents) else family.tool_calls
    # vLLM takes all of a reply for reasoning that does not say where its reasoning ends.
    reasoning = family.reasoning if reasons and all(agent.thinking for agent in agents) else ""
    chosen = Parsers(
        tool_calls if config.tool_call_parser == AUTO else config.tool_call_parser,
        reasoning if config.reasoning_parser == AUTO else config.reasoning_parser,
    )
    _check_names(config)
    return chosen


def read_template(model_dir: str) -> tuple[str, bool]:
    """The chat template of a model, empty for one without, and whether the model reasons unless it is told not to. `model_dir`:
    folder or Hugging Face name."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    template: str = tokenizer.chat_template or ""
    if THINK not in template:
        return template, False
    question = [{"role": "user", "content": "?"}]
    opening: str = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    return template, "enable_thinking" in template or opening.rstrip().endswith(THINK)


def _check_names(config: ServeConfig) -> None:
    for option, name in (("tool_call_parser", config.tool_call_parser), ("reasoning_parser", config.reasoning_parser)):
        if name in ("", AUTO):
            continue
        from vllm.reasoning import ReasoningParserManager
        from vllm.tool_parsers import ToolParserManager

        known = (ToolParserManager if option == "tool_call_parser" else ReasoningParserManager).list_registered()
        if name not in known:
            raise ServeError(f"serve.{option} {name!r}: vLLM has no such parser. It has {', '.join(sorted(known))}.")


_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AppSettings:
    """Settings of an engine's application. Ray keeps them as long as the endpoint runs, so they hold no key.

    Of the options of `serve` folders are absolute and hold no symbolic links, and `adapter_places` is how many adapters are there
    at least. `index_dir` is the search index, empty with all other folders for an endpoint without one; `vectors_dir` is there or
    not. Where prompts' log-probabilities are not allowed, on a CPU, they end vLLM's engine where requests to other adapters are
    in its batch."""

    serve: ServeConfig
    engine: EngineConfig
    agent: AgentConfig
    adapters: dict[str, str] = field(default_factory=dict[str, str])
    max_lora_rank: int = 16
    keys: tuple[KeyHash, ...] = ()
    index_dir: str = ""
    vectors_dir: str = ""
    run_dir: str = ""
    trial: Trial | None = None
    parsers: Parsers = field(default_factory=Parsers)
    question_weights: Mapping[str, float] = field(default_factory=dict[str, float])
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    allows_prompt_logprobs: bool = True


def build_app_settings(sections: ServeSections, inputs: Inputs, keys: Sequence[Key] = ()) -> AppSettings:
    """The settings of the engines. Raises ConfigError, ServeError, SearchIndexError, ArtifactError, DamageError as `stage.run`,
    before Ray is asked."""
    serve, engine = sections.serve, sections.engine
    adapters = resolve_adapters(serve, inputs.find("finetune"), engine.model)
    model_dir = resolve_model(engine.model)
    records = read_adapters(adapters, model_dir, engine.model, sections.agent)
    template, reasons = read_template(model_dir)
    agents = (sections.agent, *(record.agent for record in records.values()))
    for agent in agents:
        check_functions_shown(engine.model, list_shown_functions(agent))
    index_stage_dir = inputs.find("index")
    index_dir, vectors_dir = resolve_index(index_stage_dir), ""
    if index_dir:
        vectors_dir = _check_searches(Path(index_dir).parent, inputs.find("embed"), serve, agents)
        check_groups(keys, read_access_column(Path(index_dir)))
    say_other_origins(index_dir, records, serve.evaluation)
    run_dir = index_stage_dir and index_stage_dir.absolute().parent
    if serve.feedback.enabled:
        _open_feedback(run_dir)
    by_name = {name: records[name].agent if name in records else sections.agent for name in (serve.served_name, *adapters)}
    features = serve.rerank.features
    resolved = {
        "rerank": serve.rerank.model_copy(update={"features": features and features.resolve()}),
        "api_key": SecretStr(""),
        "api_key_file": None,
        "adapter_dirs": resolve_adapter_dirs(serve),
        "adapter_places": max(len(adapters), serve.adapter_places if serve.adapter_dirs else 1),
    }
    return AppSettings(
        serve=serve.model_copy(update=resolved),
        engine=engine,
        agent=sections.agent,
        adapters={name: str(path) for name, path in adapters.items()},
        max_lora_rank=compute_max_lora_rank(serve, adapters),
        keys=tuple(hash_key(key.text, key.groups) for key in keys),
        index_dir=index_dir,
        vectors_dir=vectors_dir,
        run_dir=str(run_dir or ""),
        trial=open_trial(serve, run_dir, adapters, by_name) if run_dir else None,
        parsers=choose_parsers(serve, template, reasons, list(records.values())),
        question_weights=resolve_question_weights(serve, adapters),
        telemetry=sections.telemetry,
    )


def resolve_index(index_dir: Path | None) -> str:
    """The search index of the run's index stage, absolute; empty where that was never started. Raises ArtifactError where the
    stage has not finished and DamageError where it is not what was written."""
    if index_dir is None:
        return ""
    require_manifest(index_dir)
    refuse_damage(index_dir, whole=True, quick_folders=(image_store.DIR_NAME, question_images.DIR_NAME))
    return str((index_dir / "search_index").resolve())


def _open_feedback(run_dir: Path | None) -> None:
    """Make the secret that all engines share for feedback. Raises ConfigError where nothing is searched that could have feedback
    and ArtifactError where the disk refuses."""
    if run_dir is None:
        raise ConfigError("serve.feedback.enabled: the run has no index, so there are no searches. Run: python jobs/index.py")
    make_secret(run_dir / FEEDBACK_DIR_NAME)


def resolve_question_weights(config: ServeConfig, adapters: Collection[str]) -> dict[str, float]:
    """The weights of the question that `serve.evaluation` found for the models that are served, by their names. Raises ServeError
    where it found none for any of them; ArtifactError where it has not finished; and DamageError where it is not what was
    written."""
    if config.evaluation is None:
        return {}
    found = read_question_weights(config.evaluation)
    weights = {name: found[name] for name in (config.served_name, *adapters) if name in found}
    if not weights:
        raise ServeError(
            f"serve.evaluation {config.evaluation}: found weights of the question for {', '.join(found) or 'no policy'}, and "
            f"served are {', '.join((config.served_name, *adapters))}. Leave the option out, or evaluate with "
            "evaluate.question_weights."
        )
    _logger.info(f"the question counts {', '.join(f'{weight:g} for {name}' for name, weight in weights.items())}")
    return weights


def check_index(index_dir: Path, embed_dir: Path | None, settings: AppSettings) -> None:
    """Refuse a newer index that could not be served from the start. Raises what `build_app_settings` does."""
    _refuse_doubts(index_dir / "search_index", settings.serve)
    for option, retrieval in (("serve", settings.serve.retrieval), ("agent", settings.agent.retrieval)):
        find_vectors(index_dir, embed_dir, retrieval, f"{option}.retrieval")
    settings.agent.load_tools().check_index(index_dir)


def _refuse_doubts(search_dir: Path, config: ServeConfig) -> None:
    for doubt in _list_doubts(search_dir, config):
        if not config.rerank.other_index:
            raise ServeError(f"serve.{doubt} --serve.rerank.other-index serves it so, as on an index that has grown.")
        _logger.warning(doubt)


def _check_searches(index_dir: Path, embed_dir: Path | None, config: ServeConfig, agents: Iterable[AgentConfig]) -> str:
    """Refuse what an index lacks of that which is to be searched, and a model for ordering pages that is none; returns the folder
    of the vectors."""
    if embed_dir:
        require_manifest(embed_dir)
        refuse_damage(embed_dir, whole=True)
    _refuse_doubts(index_dir / "search_index", config)
    vectors_dir = find_vectors(index_dir, embed_dir, config.retrieval, "serve.retrieval")
    find_vectors(index_dir, embed_dir, config.trial.retrieval or "bm25", "serve.trial.retrieval")
    for agent in agents:
        agent.load_tools().check_index(index_dir)
        find_vectors(index_dir, embed_dir, agent.retrieval, "agent.retrieval")
    return str(vectors_dir.resolve())


def _list_doubts(search_dir: Path, config: ServeConfig) -> Iterator[str]:
    """Sentences on what was learned for another index than is searched. ConfigError where what is to order pages cannot."""
    if config.rerank.model:
        from drag_ray.engine.encoders.reranker_files import describe_other_index, find_files

        if doubt := describe_other_index(find_files(config.rerank), search_dir):
            yield doubt
    if config.rerank.features:
        model = read_features(config.rerank.features)
        if config.rerank.model and config.rerank.weight is None and model.with_model is None:
            raise ConfigError(
                f"serve.rerank.features {str(config.rerank.features)!r}: learned without a model, so the weight of "
                "serve.rerank.model is not known. Evaluate with `features` and `rerank`, or set serve.rerank.weight."
            )
        if doubt := describe_other_features(model, read_fingerprint(search_dir)):
            yield doubt

"""The trial of an endpoint, and the champion that was promoted, checked against what is served before an engine starts."""

import logging
from collections.abc import Mapping
from pathlib import Path

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.tasks import ORDERING
from drag_ray.engine.models.model_files import ADAPTER_WEIGHTS_NAME
from drag_ray.errors import ConfigError, ServeError
from drag_ray.feedback.ledger import Contender, Ledger, Trial, begin_trial, locate
from drag_ray.serve.config import QUESTION_ALONE, ServeConfig
from drag_ray.storage.artifacts import compute_file_fingerprint

_logger = logging.getLogger(__name__)


def open_trial(
    config: ServeConfig, run_dir: Path, adapters: Mapping[str, Path], agents: Mapping[str, AgentConfig]
) -> Trial | None:
    """The trial of the options, recorded in the ledger of the run; None for none. Raises ConfigError where the challenger, or
    what stands for the champion, is not served, or cannot do what it is to do; ServeError where the champion of the ledger is not
    served; and ArtifactError where the ledger cannot be read or written."""

    def read_weights(name: str) -> str:
        path = adapters[name] / ADAPTER_WEIGHTS_NAME if name in adapters else None
        return compute_file_fingerprint(path) if path and path.is_file() else ""

    ledger = Ledger(run_dir)
    if ledger.changes:
        champion = ledger.changes[-1].champion
        _check_champion(champion, run_dir, agents)
        if champion.weights != read_weights(champion.model):
            _logger.warning(
                f"{champion.model!r} stands for the champion, and has other weights than when it was tried. "
                "Serve those by this name, or try the new ones by another."
            )
    trial = config.trial
    if not trial.challenger:
        return None
    _check_names({"challenger": trial.challenger, "champion": trial.champion}, agents)
    _check_order(config, agents)
    return begin_trial(ledger, trial, next(iter(adapters), config.served_name), read_weights)


def _check_champion(champion: Contender, run_dir: Path, agents: Mapping[str, AgentConfig]) -> None:
    for name in (champion.model, champion.reranker):
        if name and name not in (QUESTION_ALONE, *agents):
            raise ServeError(
                f"{locate(run_dir)}: the champion is {champion.describe()}, and {name!r} is not served. Name its folder in "
                f"serve.adapters, or run: drag-ray trial {run_dir} --rollback"
            )


def _check_names(named: Mapping[str, str], agents: Mapping[str, AgentConfig]) -> None:
    for option, name in named.items():
        if name and name not in (QUESTION_ALONE, *agents):
            raise ConfigError(
                f"serve.trial.{option} {name!r}: not served. Served are {', '.join(agents)}, and {QUESTION_ALONE!r}; "
                "name others in serve.adapters."
            )


def _check_order(config: ServeConfig, agents: Mapping[str, AgentConfig]) -> None:
    trial = config.trial
    if trial.rerank and not (config.rerank.model or config.rerank.features):
        raise ConfigError("serve.trial.rerank: nothing ranks here. Name serve.rerank.model or serve.rerank.features.")
    if trial.reranker and (trial.reranker not in agents or agents[trial.reranker].task not in ORDERING):
        fitting = ", ".join(name for name, agent in agents.items() if agent.task in ORDERING)
        raise ConfigError(
            f"serve.trial.reranker {trial.reranker!r}: no served model that puts candidates in order. There are: "
            f"{fitting or 'none'}; name one in serve.adapters."
        )

"""Searches that are chosen among several replies of a model, as an evaluation's baseline `best_of` chooses."""

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from drag_ray.agent.choice import ChooseFn
from drag_ray.agent.config import AgentConfig
from drag_ray.baselines.best_of import BestOf, BestOfConfig, describe_figures
from drag_ray.baselines.best_reply import BestReply
from drag_ray.baselines.candidates import REWARD_FEATURE, CandidateReader
from drag_ray.baselines.gain_model import GAIN_MODEL_NAME, read_gain_model
from drag_ray.engine.generate import GenerateFn
from drag_ray.errors import ServeError
from drag_ray.evaluate.chooser import CHOOSER_DIR_NAME
from drag_ray.evaluate.outcome import open_evaluation
from drag_ray.finetune.outcome import find_reward_model
from drag_ray.search.searcher import Searcher
from drag_ray.serve.config import ServeConfig

_KEPT_READERS = 16

_logger = logging.getLogger(__name__)


class ReplyChooser:
    """Has searches of requests chosen. One of them after the other, whichever model writes.

    Args:
        best_of: how many replies there are, and what chooses.
        searcher: the index.
    """

    def __init__(self, best_of: BestOf, searcher: Searcher) -> None:
        self.num_replies, self.preset = best_of.options.samples, best_of.options.preset
        self._gain_model = best_of.gain_model
        self._choosing = ThreadPoolExecutor(1, "choose")

        @lru_cache(_KEPT_READERS)
        def build_reader(agent: str) -> CandidateReader:
            return best_of.build_reader(searcher, AgentConfig.model_validate_json(agent))

        self._build_reader = build_reader

    def build(self, agent: AgentConfig, generate: GenerateFn) -> ChooseFn:
        """What chooses among replies of this engine to an agent's request."""
        reader = self._build_reader(agent.model_dump_json())
        return BestReply(generate, agent, reader, self.num_replies, self._gain_model, self._choosing)


def resolve_best_of(config: ServeConfig, finetune_dir: Path | None) -> BestOf | None:
    """What `serve.best_of` asks for; None where it asks for one reply.

    Raises:
        ServeError: the evaluation has fitted nothing to choose by, or it reads rewards and the run has no reward model.
        ArtifactError: it has not finished, or the run's reward model was not merged.
        DataError: what it has fitted cannot be read.
        DamageError: it is not what was written.
    """
    if not config.best_of:
        return None
    assert config.evaluation, "`ServeConfig` sees to that"
    folder = open_evaluation(config.evaluation) / CHOOSER_DIR_NAME
    if not (folder / GAIN_MODEL_NAME).is_file():
        raise ServeError(
            f"serve.best_of: {config.evaluation} has fitted nothing to choose by. Evaluate with "
            """--evaluate.baselines '["best_of"]', or leave the option out."""
        )
    model = read_gain_model(folder)
    reward_model = find_reward_model(finetune_dir) if REWARD_FEATURE in model.features else None
    if REWARD_FEATURE in model.features and reward_model is None:
        raise ServeError(
            f"serve.best_of: what {config.evaluation} has fitted reads rewards, and this run has trained no reward model. Serve "
            "the run that it belongs to, with adapters by name (serve.adapters), or evaluate again without one."
        )
    _logger.info(f"searches take the best of {config.best_of} replies and the question ({describe_figures(model)})")
    return BestOf(BestOfConfig(samples=config.best_of), model, reward_model)

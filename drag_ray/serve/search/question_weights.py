"""The weight of the question with which each served model is asked, as an evaluation found it."""

import logging
from collections.abc import Collection

from drag_ray.errors import ServeError
from drag_ray.evaluate.outcome import read_question_weights
from drag_ray.serve.config import ServeConfig

_logger = logging.getLogger(__name__)


def resolve_question_weights(config: ServeConfig, adapters: Collection[str]) -> dict[str, float]:
    """The weights of the question that `serve.evaluation` found for the models that are served, by their names.

    Raises:
        ServeError: it found none for any of them.
        ArtifactError: it has not finished.
        DamageError: it is not what was written.
    """
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

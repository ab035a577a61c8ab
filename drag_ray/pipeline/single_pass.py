"""One pass over the stages, with a reranker beside the policy where one is wanted."""

from collections.abc import Callable

from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import list_compared, list_pipeline, run_stages
from drag_ray.pipeline.trained_reranker import build_evaluation, build_training, train_reranker
from drag_ray.stage_runs.address import Address
from drag_ray.storage.artifacts import Manifest


def run_pass(config: RunConfig, start_ray: Callable[[], object] = lambda: None) -> dict[str, Manifest]:
    """Run every stage once; what is finished is skipped.

    Returns:
        The manifests of all stages, by their addresses.

    Raises:
        ConfigError: a stage cannot be run with these options; then none has been.
    """
    if not config.train_reranker:
        return run_stages(list_pipeline(config), config, start_ray)
    training, evaluation = build_training(config, Address("process", scope=config.scope)), build_evaluation(config)
    compared = list_compared(config)
    finished = run_stages([stage for stage in list_pipeline(config) if stage not in compared], config, start_ray)
    finished |= train_reranker(training, start_ray)
    return finished | run_stages(compared, evaluation, start_ray)

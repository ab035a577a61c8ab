"""One pass over the stages, with a reranker beside the policy where one is wanted."""

from collections.abc import Callable

from drag_ray.address import Address
from drag_ray.artifacts import Manifest
from drag_ray.pipeline import check_stages, list_pipeline, run_stages
from drag_ray.run_config import RunConfig
from drag_ray.stages import COMPARED, STAGES
from drag_ray.trained_reranker import build_evaluation, build_training, train_reranker


def run_pass(config: RunConfig, start_ray: Callable[[], object] = lambda: None) -> dict[str, Manifest]:
    """Run every stage once; what is finished is skipped.

    Returns:
        The manifests of all stages, by their addresses.

    Raises:
        ConfigError: a stage cannot be run with these options; then none has been.
    """
    stages = list_pipeline(config)
    if not config.train_reranker:
        return run_stages(stages, config, start_ray)
    training, evaluation = build_training(config, Address("process", scope=config.scope)), build_evaluation(config)
    compared = [stage for stage in stages if stage.name in COMPARED]
    check_stages([STAGES["format"], STAGES["finetune"]], training)
    check_stages(compared, evaluation)
    finished = run_stages([stage for stage in stages if stage not in compared], config, start_ray)
    finished |= train_reranker(training, start_ray)
    return finished | run_stages(compared, evaluation, start_ray)

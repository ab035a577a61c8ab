"""How many rollouts an optimisation may take: as many as training was given, and never more."""

from pathlib import Path

from drag_ray.artifacts import read_manifest
from drag_ray.errors import ConfigError


def count_collected(collect_dir: Path | None) -> int:
    """The rollouts that a collection has brought to an end, proposals of baselines and hinted ones among them; 0 without one.

    Raises:
        DamageError: its manifest cannot be read.
    """
    manifest = read_manifest(collect_dir) if collect_dir else None
    return sum(manifest.counts.get(name, 0) for name in ("finished", "hinted")) if manifest else 0


def compute_metric_calls(max_rollouts: int, num_validation: int, minibatch_size: int) -> int:
    """What GEPA is given as `max_metric_calls`, so that it takes `max_rollouts` at most.

    GEPA looks at its budget before it makes a proposal, and a proposal can then take a minibatch for its parent, one for itself
    and all validation questions. So it begins none that might not fit.

    Raises:
        ConfigError: not even one proposal fits beside the validation of the instructions that there are.
    """
    per_proposal = 2 * minibatch_size + num_validation
    if max_rollouts < num_validation + per_proposal:
        raise ConfigError(
            f"prompt.rollouts: got {max_rollouts or 'none, and no collection to take as many as'}, expected at least "
            f"{num_validation + per_proposal}: {num_validation} validation questions twice and a minibatch of {minibatch_size} "
            "twice. Set --prompt.rollouts, or lower prompt.validation_questions and prompt.minibatch_size."
        )
    return max_rollouts - per_proposal + 1

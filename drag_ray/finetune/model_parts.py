"""The parts of a model whose own weights are trained: the language model, what it sees with, and what lies between the two.

A part is told by the names of its modules.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from drag_ray.engine.models.adapter_weights import is_finite
from drag_ray.engine.models.model_files import PROJECTOR_MODULES, VISION_MODULES
from drag_ray.errors import NotFiniteError, TrainError

_PROJECTOR = re.compile(rf"(^|\.)({PROJECTOR_MODULES})\.")
_VISION = re.compile(rf"(^|\.)({VISION_MODULES})\.")


def find_part(name: str) -> str:
    """The part that a parameter belongs to: what is of neither of the other two is language."""
    if _PROJECTOR.search(name):
        return "projector"
    return "vision" if _VISION.search(name) else "language"


def free_parts(model: Any, parts: Collection[str]) -> None:
    """Have these parts of a model learn, and no other weights. Raises TrainError where it has no such part, or nobody knows which
    of its weights see."""
    found = {find_part(name) for name, _ in model.named_parameters()}
    if getattr(model.config, "vision_config", None) and "vision" not in found:
        modules = sorted({".".join(name.split(".")[:2]) for name, _ in model.named_parameters()})
        raise TrainError(
            f"finetune.parts: the model sees, and none of its modules has a name that is known of vision: {', '.join(modules)}. "
            "Train an adapter, or report this."
        )
    if missing := sorted(set(parts) - found):
        raise TrainError(f"finetune.parts {missing[0]}: the model has no such part. It has: {', '.join(sorted(found))}.")
    for name, weight in model.named_parameters():
        weight.requires_grad_(find_part(name) in parts)


def split_rates(optimizer: Any, model: Any, rates: Mapping[str, float]) -> None:
    """Give the parts of a model that an optimizer learns their own rates."""
    parts = {weight: find_part(name) for name, weight in model.named_parameters()}
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        for part in sorted({parts[weight] for weight in group["params"]}):
            own = [weight for weight in group["params"] if parts[weight] == part]
            groups.append({**group, "params": own, "lr": rates.get(part, group["lr"])})
    optimizer.param_groups[:] = groups


def check_trained(before: Any, after: Any, parts: Collection[str]) -> None:
    """Compare a model as it is written with the one that it started from, in the same number format. Raises NotFiniteError where
    a weight is not finite, and TrainError where a part is as it was, or another one has changed."""
    old, changed = dict(before.named_parameters()), set[str]()
    for name, weight in after.named_parameters():
        if not is_finite(weight):
            raise NotFiniteError(f"the trained model: {name} is not finite. Train again with a lower finetune.learning_rate.")
        if not weight.equal(old[name]):
            changed.add(find_part(name))
    if unlearned := sorted(set(parts) - changed):
        raise TrainError(
            f"training has changed nothing of the part {unlearned[0]} that the number format {after.dtype} shows. Raise "
            "finetune.learning_rate or finetune.epochs, or set finetune.dtype to float32."
        )
    if touched := sorted(changed - set(parts)):
        raise TrainError(f"the part {touched[0]} was frozen, but has changed. Report this as a bug.")

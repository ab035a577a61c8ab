"""Messages about an endpoint by the probabilities that it gives."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from drag_ray.errors import ServeError
from drag_ray.finetune.outputs.served_proof import Reference, prove

BASE = [np.array([-1.0, -2.0]), np.array([-3.0])]
NAMES = ("tuned", "Serve it.")
REFERENCE = Reference([[1, 2, 3], [4, 5]], BASE, [log_probabilities + 0.3 for log_probabilities in BASE])


def serve(change: float) -> Callable[[Sequence[int]], Sequence[float]]:
    return lambda token_ids: (BASE[0 if len(token_ids) == 3 else 1] + change).tolist()


def test_what_agrees_with_the_adapter_is_it_unless_that_changes_too_little() -> None:
    proof = prove(REFERENCE, serve(0.31), *NAMES)
    assert (proof.effect, proof.error) == (pytest.approx(0.3), pytest.approx(0.01))
    with pytest.raises(ServeError, match="cannot be told"):
        prove(Reference(REFERENCE.token_ids, BASE, [value + 0.01 for value in BASE]), serve(0.01), *NAMES)


@pytest.mark.parametrize("change", [0.0, 0.15, 0.6])
def test_the_base_model_a_part_of_the_adapter_and_too_much_of_it_are_not(change: float) -> None:
    with pytest.raises(ServeError, match=rf"tuned is not this adapter.*by {change:.4f} from the base model's.*Serve it\."):
        prove(REFERENCE, serve(change), *NAMES)

"""What replies cost is known after a full disk, or said not to be."""

import resource
from pathlib import Path

import pytest

from drag_ray.engine.config import EndpointConfig
from drag_ray.engine.generate import Usage
from drag_ray.engine.spending import Spending
from drag_ray.errors import ArtifactError

TERMS = EndpointConfig(address="http://127.0.0.1:1/v1", prompt_price=1.0, completion_price=2.0, budget=1.0)
REPLY = Usage(num_prompt_tokens=1_000_000, num_completion_tokens=0)


def test_a_reply_of_which_half_a_line_was_written_is_an_error_and_the_line_is_named_later(tmp_path: Path) -> None:
    path = tmp_path / "spending.jsonl"
    spending = Spending(path, TERMS)
    spending.add(REPLY)
    cost = spending.compute_cost()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
    try:
        with pytest.raises(ArtifactError, match=r"spending\.jsonl: cannot be written \(No space left on device\)"):
            spending.add(REPLY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert spending.compute_cost() == cost > 0
    spending.add(REPLY)  # on the half line
    with pytest.raises(ArtifactError, match=r"spending\.jsonl: not what was written .* Remove the line that is none"):
        spending.compute_cost()

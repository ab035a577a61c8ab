"""What vLLM gives back, as a reply."""

from types import SimpleNamespace

import pytest

from drag_ray.engine.vllm_client import _to_generation
from drag_ray.errors import RolloutError


def build_reply(token_ids: list[int], logprob_token_ids: list[int] | None) -> SimpleNamespace:
    logprobs = logprob_token_ids and SimpleNamespace(token_ids=logprob_token_ids, logprobs=[-0.5] * len(logprob_token_ids))
    return SimpleNamespace(text="a reply", token_ids=token_ids, finish_reason="stop", logprobs=logprobs)


def test_each_token_has_its_log_probability() -> None:
    assert _to_generation(build_reply([5, 7], [5, 7]), [1], in_reasoning=False, prompt_digest="").completion_logprobs == (
        -0.5,
        -0.5,
    )
    assert _to_generation(build_reply([5, 7], None), [1], in_reasoning=False, prompt_digest="").completion_logprobs == ()


@pytest.mark.parametrize("others", [[5], [5, 8], [5, 7, 9]])
def test_log_probabilities_of_other_tokens_are_refused(others: list[int]) -> None:
    with pytest.raises(RolloutError, match="not those of the tokens"):
        _to_generation(build_reply([5, 7], others), [1], in_reasoning=False, prompt_digest="")

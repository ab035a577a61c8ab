"""Whether an adapter that an engine has loaded changes what it writes.

An engine that applies nothing of an adapter says nothing of that, and answers under its name as the base model does.
"""

import math
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from drag_ray.errors import ServeError

_TEXT = (
    "Question: How fast may the rotor turn?\n<think>The limit is asked for.</think>\n<search>rotor speed limit rpm</search>\n"
    "<answer>340 rpm <cite>guide.pdf#12</cite></answer>"
)
"""What its probabilities are those of."""
_ROUNDING = 1e-5
"""nats a token by which two readings may differ without meaning anything"""


async def check_effect(engine: Any, adapter: Any) -> None:
    """Compare the probabilities that an engine gives a short text with the adapter and without: three readings.

    Args:
        engine: vLLM's `AsyncLLM`.
        adapter: vLLM's `LoRARequest`.

    Raises:
        ServeError: they are not numbers, or differ no more than those of the base model, read twice, do.
    """
    token_ids = engine.get_tokenizer()(_TEXT)["input_ids"]
    base, adapted, again = [await _read(engine, token_ids, reader) for reader in (None, adapter, None)]
    if not all(map(math.isfinite, adapted)):
        raise ServeError("the probabilities that the model gives with it are no numbers. Train again with a lower learning rate")
    effect, noise = _compute_gap(adapted, base), _compute_gap(again, base)
    if effect <= max(noise, _ROUNDING):
        raise ServeError(
            f"it changes nothing: log-probabilities differ by {effect:.2g} a token from those of the base model, whose own "
            f"differ by {noise:.2g} from one reading to the next. Look whether it was made for this model, and train longer"
        )


async def _read(engine: Any, token_ids: Sequence[int], adapter: Any) -> list[float]:
    """The log-probability of each token but the first."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, output_kind=RequestOutputKind.FINAL_ONLY)
    prompt = {"prompt_token_ids": list(token_ids)}
    logprobs: Any = None
    async for output in engine.generate(prompt, params, f"canary-{uuid4()}", lora_request=adapter):
        logprobs = output.prompt_logprobs
    return [given[token].logprob for token, given in zip(token_ids[1:], logprobs[1:], strict=True)]


def _compute_gap(some: Sequence[float], others: Sequence[float]) -> float:
    """The mean difference, in nats a token."""
    return sum(abs(one - other) for one, other in zip(some, others, strict=True)) / len(some)

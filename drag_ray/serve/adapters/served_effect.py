"""Whether an adapter that an engine has loaded changes what it writes.

An engine that applies nothing of an adapter says nothing of that, and answers under its name as the base model does.
"""

import math
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from drag_ray.errors import ServeError

_TEXT = "Question: How fast may the rotor turn?\n<think>The limit is asked for.</think>\n<search>rotor speed"
"""What the next token is asked of."""
_NUM_TOKENS = 20
"""Likeliest tokens that are compared, as many as vLLM gives."""
_ROUNDING = 1e-5
"""nats by which two readings may differ without meaning anything"""


async def check_effect(engine: Any, adapter: Any) -> None:
    """Compare what an engine expects after a short text with the adapter and without: three readings.

    Args:
        engine: vLLM's `AsyncLLM`.
        adapter: vLLM's `LoRARequest`.

    Raises:
        ServeError: they are not numbers, or differ no more than those of the base model, read twice, do.
    """
    base, adapted, again = [await _read(engine, reader) for reader in (None, adapter, None)]
    if not all(map(math.isfinite, adapted.values())):
        raise ServeError("the probabilities that the model gives with it are no numbers. Train again with a lower learning rate")
    effect, noise = _compute_gap(adapted, base), _compute_gap(again, base)
    if effect <= max(noise, _ROUNDING):
        raise ServeError(
            f"it changes nothing: log-probabilities differ by {effect:.2g} from those of the base model, whose own "
            f"differ by {noise:.2g} from one reading to the next. Look whether it was made for this model, and train longer"
        )


async def _read(engine: Any, adapter: Any) -> dict[int, float]:
    """The log-probabilities of the likeliest next tokens. Those of a prompt's own tokens end vLLM's engine on a CPU, where others
    are in the batch that come with adapters."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(max_tokens=1, temperature=0, logprobs=_NUM_TOKENS, output_kind=RequestOutputKind.FINAL_ONLY)
    prompt = {"prompt_token_ids": list(engine.get_tokenizer()(_TEXT)["input_ids"])}
    logprobs: Mapping[int, Any] = {}
    async for output in engine.generate(prompt, params, f"canary-{uuid4()}", lora_request=adapter):
        logprobs = output.outputs[0].logprobs[0]
    return {token: given.logprob for token, given in logprobs.items()}


def _compute_gap(some: Mapping[int, float], others: Mapping[int, float]) -> float:
    """The mean difference of those that both have, in nats."""
    shared = some.keys() & others.keys()
    return sum(abs(some[token] - others[token]) for token in shared) / len(shared) if shared else math.inf

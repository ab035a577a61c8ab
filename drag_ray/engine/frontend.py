"""What a token costs in the process that takes it in, vLLM's front end, in which the rollouts run too.

With a model so small that this process is the limit, log-probabilities are most of it: vLLM sends each of them as arrays of its
own.
"""

import gc
from typing import Any

_ALLOCATIONS_BEFORE_GC = 100_000
"""Objects made and not freed before Python's garbage collector runs. A step of an engine makes some thousands, which are freed
when it has been taken in; with Python's own 700 the collector ran several times in each step."""


def calm_garbage_collector() -> None:
    """Let Python's collector run seldom, and leave out what is there by now: all that torch, transformers and Ray have made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BEFORE_GC, *gc.get_threshold()[1:])


def skip_token_texts(engine: Any) -> None:
    """Let an `AsyncLLM` leave away the text of each drawn token that it puts beside its log-probability.

    It decodes every token a second time for that, on its own, with a look at the tokens before it. The text of the reply is not
    concerned.
    """
    output_processor = engine.output_processor
    add_request = output_processor.add_request

    def add_without_texts(request: Any, *args: Any, **options: Any) -> None:
        add_request(request, *args, **options)
        output_processor.request_states[request.request_id].logprobs_processor.tokenizer = None

    output_processor.add_request = add_without_texts

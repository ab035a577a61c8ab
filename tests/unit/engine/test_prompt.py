"""What vLLM is given as a prompt, and whether its reply begins within the reasoning."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from drag_ray.engine.generate import Request
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.vllm import VllmEngine


@pytest.mark.parametrize(("opening", "opens_reasoning"), [("<think>\n", True), ("<think>\n\n</think>\n\n", False), ("", False)])
def test_a_template_that_opens_the_reasoning_is_known(opening: str, opens_reasoning: bool) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(embedded_model_dir())
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}{{ " + repr(opening) + " }}"
    engine = VllmEngine.__new__(VllmEngine)  # without vLLM's part, which rendering does not need
    engine._tokenizer = tokenizer
    prompt_token_ids, opens = engine._render(Request(({"role": "user", "content": "Who rows?"},), PRESETS["greedy"], 8, seed=0))
    assert tokenizer.decode(prompt_token_ids) == f"Who rows?<|im_end|>{opening}"
    assert opens is opens_reasoning

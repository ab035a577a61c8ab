import gc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from drag_ray.engine.vllm import calm_garbage_collector, skip_token_texts

pytestmark = pytest.mark.seconds


@pytest.fixture
def collector() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("collector")
def test_the_collector_leaves_out_what_was_there_and_does_not_run_for_the_outputs_of_a_step() -> None:
    calm_garbage_collector()
    assert gc.get_freeze_count() > 10_000
    before = [generation["collections"] for generation in gc.get_stats()]
    outputs = [[[number]] for number in range(20_000)]
    assert [generation["collections"] for generation in gc.get_stats()] == before
    assert len(outputs) == 20_000


def test_requests_are_added_as_before_without_the_texts_of_their_tokens() -> None:
    added = []
    processor = SimpleNamespace(request_states={})

    def add_request(request: SimpleNamespace, prompt: str | None, index: int = 0) -> None:
        added.append((request.request_id, prompt, index))
        processor.request_states[request.request_id] = SimpleNamespace(
            logprobs_processor=SimpleNamespace(tokenizer="a tokenizer"), detokenizer="a detokenizer"
        )

    processor.add_request = add_request
    skip_token_texts(SimpleNamespace(output_processor=processor))
    processor.add_request(SimpleNamespace(request_id="one"), "prompt", index=3)
    assert added == [("one", "prompt", 3)]
    state = processor.request_states["one"]
    assert (state.logprobs_processor.tokenizer, state.detokenizer) == (None, "a detokenizer")

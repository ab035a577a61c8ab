"""The cache of image encodings."""

import torch

from drag_ray.engine.vllm import OwnTensors


def test_a_kept_encoding_does_not_hold_the_memory_of_its_batch() -> None:
    batch = torch.zeros(13, 1000)
    encodings = OwnTensors()
    encodings["a"] = batch[0]
    encodings.update(zip(("b", "c"), batch[1:3], strict=True))
    assert {tensor.untyped_storage().nbytes() for tensor in encodings.values()} == {4000}
    assert torch.equal(encodings["b"], batch[1])

from collections.abc import Iterator

import pytest
import torch

from drag_ray.finetune.trainers.adapter_trainer import leave_out_broken_kernels


@pytest.fixture(autouse=True)
def default_kernels() -> Iterator[None]:
    yield
    torch.backends.cuda.enable_cudnn_sdp(True)


@pytest.mark.parametrize(("version", "is_left"), [(92000, False), (92501, False), (92600, True), (None, False)])
def test_cudnn_attention_is_left_out_where_it_is_broken(
    version: int | None, is_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: version)
    leave_out_broken_kernels()
    assert torch.backends.cuda.cudnn_sdp_enabled() == is_left
    assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.mem_efficient_sdp_enabled()

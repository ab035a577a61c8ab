"""The kernels of PyTorch's attention that training uses: the one that Hopper GPUs take first can break it."""

from typing import Any

import torch

CUDNN_BUG = "https://github.com/pytorch/pytorch/issues/196678"
"""Its backward pass gives NaN where there is a mask, the length is 64 more than a multiple of 128, and no key of a query scores
above -88.7, as in Qwen2.5. PyTorch takes cuDNN first on Hopper GPUs, and has had this since 2.11."""

_FIRST_SOUND_CUDNN = 92600
"""cuDNN 9.26: https://github.com/pytorch/pytorch/pull/196861 guards PyTorch from 9.25.1 and older ones."""

_KERNELS = ("flash", "mem_efficient", "cudnn", "math")


def leave_out_broken_kernels() -> None:
    """Keep this process from cuDNN's attention where it is broken."""
    if not is_cudnn_sound():
        torch.backends.cuda.enable_cudnn_sdp(False)


def is_cudnn_sound() -> bool:
    """True if cuDNN's attention gives gradients that can be learned from. See `CUDNN_BUG`."""
    return (torch.backends.cudnn.version() or 0) >= _FIRST_SOUND_CUDNN


def uses_cudnn() -> bool:
    """True if this process may come to use cuDNN's attention."""
    return torch.cuda.is_available() and torch.backends.cuda.cudnn_sdp_enabled()


def describe_attention(model: Any, use_gpu: bool) -> str:
    """A description of the model's attention: implementation, kernels that are allowed, version and GPU."""
    implementation = model.config._attn_implementation
    if not use_gpu:
        return f"{implementation}, torch {torch.__version__}"
    allowed = [name for name in _KERNELS if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()]
    return f"{implementation} ({', '.join(allowed)}), torch {torch.__version__}, {torch.cuda.get_device_name()}"

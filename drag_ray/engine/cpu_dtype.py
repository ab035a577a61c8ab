"""The number format that a model computes in on CPUs."""

import logging

_logger = logging.getLogger(__name__)


def choose_cpu_dtype(dtype: str, what: str) -> str:
    """The number format for this machine's CPUs: float32 where these have no AVX-512, else as it is.

    There PyTorch multiplies 16-bit matrices one number after the other: 0.8 GFLOP/s instead of 110 on two cores of an AMD EPYC.

    Args:
        dtype: that is asked for.
        what: computes, for the message.
    """
    import torch

    if dtype != "float32" and torch.backends.cpu.get_cpu_capability() == "AVX2":
        _logger.info(f"{what}: computes in float32 rather than {dtype}, in which these CPUs are many times slower")
        return "float32"
    return dtype

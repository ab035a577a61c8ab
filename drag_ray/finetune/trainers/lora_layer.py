"""A linear layer with a LoRA adapter that adds the adapter's part within its matrix product.

PEFT's own brings the input to the type of the adapter's weights, float32, which autocast takes back to bfloat16 at once, and
scales and adds what the adapter makes in passes of their own, over the whole output each.
"""

from typing import Any

import torch
from peft.tuners.lora import Linear


class LoraLinear(Linear):
    """PEFT's layer, for one plain adapter under autocast, or of the type of what it reads; others go PEFT's way."""

    def forward(self, x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        """`x` of shape (..., tokens, features in) -> the same with the features out."""
        names = [name for name in self.active_adapters if name in self.lora_A]
        if args or options or len(names) != 1 or not self._is_plain(names[0], x):
            return super().forward(x, *args, **options)
        (name,) = names
        rows = x.flatten(0, -2)
        # In place, of what is no view: autograd then hands the gradient on as it is.
        out = self.base_layer(rows)
        inner = self.lora_A[name](self.lora_dropout[name](rows)) * self.scaling[name]
        out.addmm_(inner.to(out.dtype), self.lora_B[name].weight.T.to(out.dtype))
        return out.view(*x.shape[:-1], out.shape[-1])  # there may be no row: an expert without a token

    def _is_plain(self, name: str, x: torch.Tensor) -> bool:
        fits = torch.is_autocast_enabled(x.device.type) or self.lora_A[name].weight.dtype == x.dtype
        is_lone = not (self.disable_adapters or self.merged or self.lora_bias[name] or name in self.lora_variant)
        return fits and is_lone

"""A loss of the trained tokens alone, each counted as often as its row's weight says, and TRL's supervised trainer with it."""

from typing import Any

import torch
from torch.nn.functional import cross_entropy
from trl.trainer.sft_trainer import SFTTrainer
from trl.trainer.utils import add_fused_lm_head

from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.finetune.trainers.adapter_trainer import AdapterTrainer

_OF_THE_LOSS = ("labels", "weight", "advantage", "rows", "engine_log_probabilities")
"""What of a batch the loss alone reads: what is learned, what a row counts, which row a token is of, and how likely drawn tokens
were to the engine."""


class TrainedTokensTrainer(AdapterTrainer, SFTTrainer):
    """`SFTTrainer` that projects only the trained positions onto the vocabulary, and in which rows can count differently.

    On GPUs TRL's fused head does so a chunk at a time. Elsewhere it would project every position of the prompt too, which is most
    of a step for a small model with a large vocabulary: 7 to 10 s instead of 2.4 s (SmolLM2-135M, 8 rows of 210 tokens, 2 cores).

    Where batches have a `weight`, tokens count so often in the sum, and once in the number that divides it: the trained tokens of
    a whole step. Vision-language models say of themselves that their loss is not divided so, and with gradient accumulation each
    batch would be divided by its own tokens, and weighted ones by the number of batches again.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.model_accepts_loss_kwargs = True
        if not self.args.use_cpu:  # TRL's own computes entropies and guesses for its log too
            add_fused_lm_head(find_base(self.model))

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Bring a batch to the model. With DeepSpeed its numbers become those of the model's type; what the loss reads keeps its
        own, for in bfloat16 a log-probability of -20 is off by up to 0.06."""
        of_loss = {name: inputs[name].to(self.args.device) for name in _OF_THE_LOSS if name in inputs}
        return super()._prepare_inputs(list_features(inputs)) | of_loss

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """The loss of a batch. `return_outputs` is never asked for: only losses are evaluated."""
        loss = self.compute_batch_loss(model, inputs, num_items_in_batch)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # the count is over all processes, whose gradients are averaged
        return loss

    def compute_batch_loss(self, model: Any, inputs: dict[str, Any], num_tokens: torch.Tensor | int | None) -> torch.Tensor:
        """`compute_trained_loss`, in the place of which another loss of the trained tokens can stand."""
        return compute_trained_loss(model, inputs, num_tokens, fused=not self.args.use_cpu)


def find_base(model: Any) -> Any:
    """The model without the adapter around it, if there is one."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def compute_trained_loss(
    model: Any, inputs: dict[str, Any], num_tokens: torch.Tensor | int | None = None, *, fused: bool = False
) -> torch.Tensor:
    """Negative log-likelihood of the trained tokens: summed, and divided by `num_tokens` or by their number in this batch.

    With a `weight` of each row, its tokens count so often in the sum: a row that weighs half moves the model half as far, also
    where a batch holds no other.

    Args:
        model: a causal language model whose forward takes `logits_to_keep`, as all of transformers do.
        inputs: of `RowCollator`: `input_ids` and `labels`, each of shape (rows, tokens), perhaps `weight` of shape (rows,) with
            `rows`, and what else the model's forward takes.
        num_tokens: trained tokens of the whole step, where it has several batches.
        fused: as for `compute_log_probabilities`.
    """
    log_probabilities, is_trained = compute_log_probabilities(model, inputs, fused=fused)
    losses = -log_probabilities[is_trained]
    if "weight" in inputs:
        losses = losses * inputs["weight"][find_rows(inputs)]
    return losses.sum() / (len(losses) if num_tokens is None else num_tokens)


def find_rows(inputs: dict[str, Any]) -> torch.Tensor:
    """The 0-based row of each trained token, in the order of `compute_log_probabilities`."""
    return inputs["rows"][:, 1:][inputs["labels"][:, 1:] != IGNORED_LABEL]


def compute_log_probabilities(
    model: Any, inputs: dict[str, Any], *, fused: bool, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each trained token, and where they are: both of shape (rows, positions).

    Args:
        model: as for `compute_trained_loss`.
        inputs: as for `compute_trained_loss`.
        fused: use the head that TRL's trainers give the model. On GPUs it never holds the logits of all tokens at once; elsewhere
            it projects every position of the prompt too. It has a temperature of its own.
        temperature: by which the logits are divided, where the head is not fused.
    """
    if fused:
        outputs = model(**list_features(inputs), labels=inputs["labels"], fused_lm_head=True)
        return outputs.log_probs, outputs.label_mask
    labels = inputs["labels"][:, 1:]
    positions = (labels != IGNORED_LABEL).any(dim=0).nonzero().squeeze(1)
    logits = model(**list_features(inputs), use_cache=False, logits_to_keep=positions).logits.float()
    targets = labels[:, positions]
    logits = logits if temperature == 1 else logits / temperature
    losses = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED_LABEL, reduction="none")
    return -losses.view_as(targets), targets != IGNORED_LABEL


def list_features(inputs: dict[str, Any]) -> dict[str, Any]:
    """The columns of a batch that the model's forward takes."""
    return {name: value for name, value in inputs.items() if name not in _OF_THE_LOSS}

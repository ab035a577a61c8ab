"""A policy that learns step by step from batches of drawn replies, and is kept in memory between them.

What a step does follows from its checkpoint, its rows and the seed alone, so that one that was interrupted is taken again as it
was. Gradients of an adapter are small: with several processes, of which each works on its share of the rows, they are added up
once an update. It knows nothing of Ray.
"""

import logging
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed
from peft import get_peft_model, set_peft_model_state_dict
from peft.utils.save_and_load import load_peft_weights
from transformers import set_seed

from drag_ray.engine.conversation import Row
from drag_ray.engine.models.adapter_weights import find_not_finite
from drag_ray.engine.models.canary import Canary
from drag_ray.engine.models.model_files import ADAPTER_WEIGHTS_NAME
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.errors import NotFiniteError
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.losses import LOSSES, DrawnTokens, compute_kl
from drag_ray.finetune.methods.grpo import StepCollator
from drag_ray.finetune.outputs.checkpoints import saving
from drag_ray.finetune.rows.images import open_training_images
from drag_ray.finetune.rows.tokenized_rows import AllTooLongError, RowTokenizer, name_row
from drag_ray.finetune.start import keep_start, use_start
from drag_ray.finetune.trainer import load_to_train, prepare_process
from drag_ray.finetune.trainers.adapter_trainer import compute_rate
from drag_ray.finetune.trainers.policy_gradient import DrawnScores, compare_engine, gather_drawn
from drag_ray.finetune.trainers.shared_prefixes import can_share_prefixes, collate_pack, cut_packs

_logger = logging.getLogger(__name__)

_OPTIMIZER_NAME = "optimizer.pt"
_MAX_GRAD_NORM = 1.0
_CANARY_TOKENS = 64
_SUMS = ("kl", "clipped", "entropy", "engine_gap", "tokens")


class _OfRow(NamedTuple):
    """Means over the drawn tokens of a row, as `DrawnTokens` has them."""

    kl: float
    engine_gap: float


@dataclass(frozen=True)
class _Prepared:
    """The rows of a batch, and of its tokens what `compute_old` gives, where that was computed."""

    rows: list[dict[str, Any]]
    old: torch.Tensor | None = None
    engine_gap: torch.Tensor | None = None


class PolicyLearner:
    """A model with an adapter and its optimizer, in one of the processes of a training.

    Args:
        job: the training, with the method grpo; its rows come later.
        temperature: at which replies are drawn.
        num_steps: all steps, by which the learning rate changes as in other trainings.
        num_updates: steps of the optimizer with the rows of a step, each with its share of them.
        checkpoint_dir: what it goes on from, as of `save`; None begins.
        yields_gpu: the GPU is others' between steps: what is kept waits in main memory.
    """

    def __init__(
        self,
        job: TrainJob,
        temperature: float,
        num_steps: int,
        num_updates: int,
        checkpoint_dir: Path | None,
        *,
        yields_gpu: bool,
    ) -> None:
        prepare_process(job)
        set_seed(job.config.seed)
        self._config, self._method = job.config, job.config.grpo
        self._loss = LOSSES[self._method.loss]
        self._num_steps, self._num_updates = num_steps, num_updates
        self._device = torch.device("cuda" if job.use_gpu else "cpu")
        self._yields_gpu = yields_gpu and job.use_gpu
        distributed = torch.distributed.is_initialized()
        self.rank = torch.distributed.get_rank() if distributed else 0
        self._num_workers = torch.distributed.get_world_size() if distributed else 1
        images = open_training_images(job.model, job.image_dirs)
        self._tokenizer: Any = load_tokenizer(job.model)
        self._rows = RowTokenizer(self._tokenizer, job.config.max_length, images, job.compares_prompts)
        self._model = _build_model(job)
        self._shares = images is None and can_share_prefixes(self._model.get_base_model())
        self._pad = StepCollator(self._tokenizer.pad_token_id, images)
        self._scores = DrawnScores(self._model, temperature, fused=job.use_gpu)
        self._trained = [weight for weight in self._model.parameters() if weight.requires_grad]
        self._optimizer = torch.optim.AdamW(self._trained, lr=job.config.learning_rate, weight_decay=0.0)
        if checkpoint_dir:
            weights = load_peft_weights(str(checkpoint_dir), device="cpu")
            set_peft_model_state_dict(self._model, weights)
            self._optimizer.load_state_dict(torch.load(checkpoint_dir / _OPTIMIZER_NAME, map_location="cpu", weights_only=True))
        self._canary: Canary | None = None
        self._move("cpu" if self._yields_gpu else self._device.type)

    def learn(self, rows: Iterable[Row], step: int) -> dict[str, Any]:
        """Learn from the rows of a step, which is counted from 1. Returns loss, grad_norm, learning_rate, tokens (that were
        drawn), rows, rows_too_long; kl (from the start), engine_kl (of the engine from the model before the step) and entropy (of
        that model, as the mean surprise of what was drawn), in nats a token; clipped; furthest, the row that is furthest from the
        start; and engine_gaps, for each row its trajectory and by how many nats a token the engine that drew it is below the
        model before the step, where that is known. Raises DataError where a row cannot be learned, or is not what the engine had,
        and NotFiniteError where loss or gradient is not finite; nothing is learned from the step."""
        num_warmup = math.ceil(self._config.warmup_ratio * self._num_steps)
        rate = self._config.learning_rate * compute_rate(step - 1, num_warmup=num_warmup, num_steps=self._num_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        rows = list(rows)
        trajectories = {name_row(row, number): str(row.get("trajectory_id", "")) for number, row in enumerate(rows, start=1)}
        try:
            tokenized = self._method.tokenize(rows, self._rows)
        except AllTooLongError as error:
            _logger.warning(f"rl step {step}: nothing is learned. {error}")
            return {"rows": 0, "learning_rate": rate}
        random.Random(f"{self._config.seed} {step}").shuffle(tokenized.rows)
        figures: dict[str, Any] = {"rows": len(tokenized.rows), "rows_too_long": tokenized.num_too_long, "learning_rate": rate}
        if not tokenized.rows:
            return figures
        self._move(self._device.type)
        sample = self._choose_sample(tokenized.rows[0])
        before = self._score(sample)
        sums, of_rows, losses, norms = defaultdict[str, float](float), dict[str, _OfRow](), list[float](), list[float]()
        known = any(row["engine_log_probabilities"] for row in tokenized.rows)
        parts = [tokenized.rows[number :: self._num_updates] for number in range(self._num_updates)]
        parts = [part for part in parts if part]
        prepared = [[self._prepare(batch, known) for batch in self._cut(part)] for part in parts]
        for part, batches in zip(parts, prepared, strict=True):
            loss, norm = self._update(part, batches, sums, of_rows)
            losses.append(loss)
            norms.append(norm)
        self._keep_canary(sample, before)
        if self._yields_gpu:
            self._move("cpu")
        elif self._device.type == "cuda":
            torch.cuda.empty_cache()  # an engine may have to start on this GPU again
        totals = self._add_up(torch.tensor([sums[name] for name in _SUMS], dtype=torch.float64))
        *means, num_tokens = totals.tolist()
        kl, clipped, entropy, gap = (value / num_tokens for value in means)
        return figures | {
            **{"loss": sum(losses) / len(losses), "grad_norm": max(norms), "tokens": int(num_tokens)},
            **{"kl": kl, "clipped": clipped, "entropy": entropy, "engine_kl": -gap},
            **self._describe_rows(of_rows, trajectories if known else {}),
        }

    def _describe_rows(self, of_rows: dict[str, _OfRow], trajectories: dict[str, str]) -> dict[str, Any]:
        """`furthest` and `engine_gaps` over the rows of all processes."""
        if self._num_workers > 1:
            parts: list[Any] = [None] * self._num_workers
            torch.distributed.all_gather_object(parts, of_rows)
            of_rows = {name: own for part in parts for name, own in part.items()}
        gaps = [[trajectories[name], round(own.engine_gap, 6)] for name, own in sorted(of_rows.items()) if name in trajectories]
        return {"furthest": max(of_rows, key=lambda name: of_rows[name].kl, default=""), "engine_gaps": gaps}

    def save(self, folder: Path) -> None:
        """Write adapter, tokenizer, the state of the optimizer and, once something was learned, what engines are compared by.
        Raises ArtifactError where the disk refuses, and NotFiniteError where a weight is not finite."""
        with saving(folder):
            self._model.save_pretrained(str(folder), selected_adapters=["default"])
            self._tokenizer.save_pretrained(str(folder))
            torch.save(self._optimizer.state_dict(), folder / _OPTIMIZER_NAME)
            if self._canary:
                self._canary.write(folder)
        if name := find_not_finite(folder / ADAPTER_WEIGHTS_NAME):
            rate = self._config.learning_rate
            raise NotFiniteError(
                f"{folder}: {name} is not finite, so nothing is kept of it. Lower finetune.learning_rate ({rate:g})."
            )

    def _choose_sample(self, row: dict[str, Any]) -> list[int]:
        """The last tokens of a row, without those that stand for images and turns."""
        added = self._tokenizer.added_tokens_decoder
        return [token for token in row["input_ids"] if token not in added][-_CANARY_TOKENS:]

    def _score(self, token_ids: list[int]) -> list[float]:
        """The log-probabilities of all tokens but the first."""
        if len(token_ids) < 2:
            return []
        tokens = torch.tensor([token_ids], device=self._device)
        self._model.eval()
        with torch.no_grad(), self._autocast():
            return self._scores.compute(self._model, {"input_ids": tokens, "labels": tokens}, 1.0).tolist()

    def _keep_canary(self, sample: list[int], before: list[float]) -> None:
        """Score a sample for the engines that take the policy."""
        if not before:
            return
        with use_start(self._model):
            start = self._score(sample)
        self._canary = Canary(sample, self._score(sample), {"the policy of the step before": before, "the start": start})

    def _cut(self, rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """This process's share of the rows in batches: what they begin with is shared, or those of like lengths are together."""
        size = self._config.batch_size
        if self._shares:  # as many tokens as so many of the longest would have
            longest = max(len(row["input_ids"]) for row in rows)
            packs = list(cut_packs(rows, size * longest, self._num_workers))
            return iter(packs[self.rank :: self._num_workers])
        own = sorted(rows[self.rank :: self._num_workers], key=lambda row: len(row["input_ids"]))
        return (own[start : start + size] for start in range(0, len(own), size))

    def _prepare(self, rows: list[dict[str, Any]], knows_engine: bool) -> "_Prepared":
        """A batch, and what its tokens are to the model before anything of the step is learned: in a single update at temperature
        1 these are the numbers that the update itself begins with, and need no pass of their own."""
        if self._num_updates == 1 and self._scores.temperature == 1:
            return _Prepared(rows)
        self._model.eval()
        with self._autocast():
            return _Prepared(rows, *self._scores.compute_old(self._model, self._collate(rows), knows_engine=knows_engine))

    def _collate(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """The inputs of a batch, where the model is. A row by itself needs no mask, without which attention is faster."""
        batch = collate_pack(rows) if self._shares and len(rows) > 1 else self._pad(rows)
        return {name: value.to(self._device) for name, value in batch.items()}

    def _update(
        self, rows: list[dict[str, Any]], batches: list["_Prepared"], sums: defaultdict[str, float], of_rows: dict[str, _OfRow]
    ) -> tuple[float, float]:
        """Take a step of the optimizer; returns the loss and the norm of its gradient."""
        method, options = self._method, self._method.loss_options
        num_tokens = sum(label != -100 for row in rows for label in row["labels"])
        number = len(rows) if self._loss.counts_replies(method.aggregation) else num_tokens
        self._optimizer.zero_grad()
        total = torch.zeros((), device=self._device)
        for prepared in batches:
            batch = self._collate(prepared.rows)
            with torch.no_grad(), use_start(self._model), self._autocast():
                start = self._scores.compute(self._model, batch, self._scores.temperature)
            self._model.train()
            with self._autocast():
                now = self._scores.compute(self._model, batch, self._scores.temperature)
            old = now.detach() if prepared.old is None else prepared.old
            gap = compare_engine(batch, old) if prepared.engine_gap is None else prepared.engine_gap
            drawn = gather_drawn(batch, now, old, start, gap)
            loss = self._loss.total(drawn, options, method.kl_weight, method.aggregation) / number
            loss.backward()
            total += loss.detach()
            self._count([row["name"] for row in prepared.rows], drawn, sums, of_rows)
        for weight in self._trained:
            weight.grad = self._add_up(torch.zeros_like(weight) if weight.grad is None else weight.grad)
        norm = torch.nn.utils.clip_grad_norm_(self._trained, _MAX_GRAD_NORM).item()
        loss = self._add_up(total).item()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            names = ", ".join(row["name"] for row in rows[:64])
            raise NotFiniteError(
                f"loss {loss:.4g}, gradient norm {norm:.4g}, and nothing is learned from them. Rows of the step: {names}. "
                f"Lower finetune.learning_rate ({self._config.learning_rate:g} now)."
            )
        self._optimizer.step()
        return loss, norm

    def _count(self, names: list[str], drawn: DrawnTokens, sums: defaultdict[str, float], of_rows: dict[str, _OfRow]) -> None:
        now, options = drawn.now.detach(), self._method.loss_options
        kl = compute_kl(now, drawn.start)
        clipped = self._loss.find_clipped(drawn, options)
        for name, values in zip(_SUMS, (kl, clipped, -drawn.old, drawn.engine_gap, torch.ones_like(kl)), strict=True):
            sums[name] += values.sum().item()
        means = (drawn.mean_rows(values).tolist() for values in (kl, drawn.engine_gap))
        of_rows |= zip(names, map(_OfRow, *means), strict=True)

    def _add_up(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all processes."""
        if self._num_workers > 1:
            values = values.to(self._device)
            torch.distributed.all_reduce(values)
        return values

    def _autocast(self) -> AbstractContextManager[Any]:
        uses = self._device.type == "cuda" and self._config.dtype != "float32"
        return torch.autocast("cuda", torch.bfloat16) if uses else nullcontext()

    def _move(self, device: str) -> None:
        """Bring model and optimizer to a device, and give back what they took of a GPU."""
        self._model.to(device)
        for state in self._optimizer.state.values():
            state.update({name: value.to(device) for name, value in state.items() if torch.is_tensor(value) and value.dim()})
        if device == "cpu" and self._device.type == "cuda":
            torch.cuda.empty_cache()


def _build_model(job: TrainJob) -> Any:
    """The model with its adapter, and with what this started from where it was trained before."""
    model, adapter = load_to_train(job)
    if adapter:
        model = get_peft_model(model, adapter)
    else:
        keep_start(model)
    if job.config.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model

"""The stage `rl` with TRL's `AsyncGRPOTrainer` in place of its own learner: the same rollouts, order of questions and validation.

It is the method `async_grpo` of `bench_rl.py`. Engines, workers and the course of the steps are those of the stage; TRL's trainer
has the process, and the GPU, that the stage's learner would have. Both sides of that trainer are given to it: its rollout worker
(`StepReader`) reads the rows of each step as they come, and its weight transfer (`PolicyWriter`) leaves each policy as a folder,
which the engines load as an adapter under a name of its own. What differs from the stage's learner is what TRL does otherwise:

- A step learns from a fixed number of rows, `rl.questions_per_step` times `rl.samples_per_question`. A step with fewer that teach
  something is filled up with rows of its own, whose advantage is 0; of one with more (replies in turns) some are drawn.
- Ratios are taken to the log-probabilities of the engine, and no distance from the start is looked at: `finetune.grpo.kl_weight`
  has to be 0, and the curve has no `kl`. Its `engine_kl` is the distance from the policy that drew the replies, as TRL
  estimates it.
- The base model is held in float32, with bfloat16 for its products on a GPU. TRL adds the adapter to its weights and takes it
  away again at every step, which would wear them down in bfloat16.
- Attention goes through PyTorch (`PathAttention`) where TRL asks for FlashAttention 3 from the Hub.
- A training that was killed does not go on: it is begun anew in another folder. Rows show no page images.
"""

import logging
import math
import queue
import random
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, set_peft_model_state_dict
from peft.utils.save_and_load import load_peft_weights
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback, TrainerCallback
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import AttentionInterface
from trl.experimental.async_grpo import async_grpo_trainer
from trl.experimental.async_grpo.async_grpo_config import AsyncGRPOConfig
from trl.experimental.async_grpo.async_grpo_trainer import AsyncGRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample
from trl.experimental.async_grpo.packing import TREE_ATTENTION

from drag_ray.api.run import Run
from drag_ray.engine.models.adapter_weights import find_not_finite
from drag_ray.engine.models.model_files import ADAPTER_WEIGHTS_NAME
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.errors import ConfigError, DragRayError, NotFiniteError, TrainError
from drag_ray.finetune.tokenized_rows import AllTooLongError, RowTokenizer, name_row, read_rows
from drag_ray.finetune.trainer import prepare_process
from drag_ray.finetune.trainers.adapter_trainer import compute_rate
from drag_ray.messages import show_messages
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.rl import stage
from drag_ray.rl.config import RlConfig
from drag_ray.rl.learning import ROWS_NAME, LearningJob, list_policies, locate_step
from drag_ray.rl.learning import _leave as leave_policy
from drag_ray.rl.ledger import LEDGER_NAME, StepLedger

_POLL_S = 0.02
_ASKS_CUDA = async_grpo_trainer, "get_peak_flops_per_device"
_SEEN = {
    **{name: name for name in ("loss", "grad_norm", "learning_rate", "entropy", "ratio")},
    **{"kl": "engine_kl", "clip_ratio/region_mean": "clipped", "sample/staleness_max": "staleness"},
    **{"perf/fwd_bwd_s": "forward_backward_seconds", "batch/packing_ratio": "packing_ratio"},
}
"""Figures of TRL's log, and what the curve calls them."""


class EndedError(Exception):
    """The stage has no more rows for its trainer."""


def train(run: Run) -> Path:
    """Run the stage `rl` with TRL's trainer; returns its adapter. The curve is where the stage's is.

    Raises:
        ConfigError: TRL's trainer does not have what is asked for.
    """
    check(run.config)
    with _learning_by_trl(run.config.rl):
        run.rl()
    return run.locate("rl") / "adapter"


def check(config: RunConfig) -> None:
    """ConfigError where TRL's trainer does not have what the options ask for."""
    options = config.finetune.grpo
    if (options.loss, options.aggregation, options.kl_weight) != ("grpo", "token", 0):
        raise ConfigError("finetune.grpo: TRL's trainer has the loss grpo, the aggregation token and a kl_weight of 0 alone")
    if not config.engine.logprobs:
        raise ConfigError("engine.logprobs off: TRL's trainer compares replies with the log-probabilities of the engine")
    if config.finetune.num_workers > 1:
        raise ConfigError(f"finetune.num_workers {config.finetune.num_workers}: this trainer is one process")


@contextmanager
def _learning_by_trl(settings: RlConfig) -> Generator[None]:
    def learn(loop_config: dict[str, Any]) -> DragRayError | None:
        return run_learning(loop_config["job"], settings)

    with mock.patch.object(stage, "run_learning", learn):
        yield


def run_learning(job: LearningJob, settings: RlConfig) -> DragRayError | None:
    """Runs in the training process, as the function of this name of the stage. All that it raises itself is returned."""
    show_messages()
    logging.getLogger("trl").setLevel(logging.WARNING)
    try:
        if job.yields_gpu:
            raise ConfigError("engine.gpu_memory_utilization: TRL's trainer keeps its GPU. Take 0.5 or less, or one GPU more.")
        if list_policies(job.stage_dir):
            raise TrainError(f"{job.stage_dir}: a training by TRL's trainer does not go on. Begin it in another folder.")
        _build_trainer(job, settings).train()
    except EndedError:
        pass
    except DragRayError as error:
        return error
    return None


def _build_trainer(job: LearningJob, settings: RlConfig) -> "StepTrainer":
    prepare_process(job.train)
    config, method, model = job.train.config, job.train.config.grpo, resolve_model(job.train.model)
    tokenizer: Any = load_tokenizer(model)
    num_rows = settings.questions_per_step * settings.samples_per_question
    if num_rows % settings.updates:
        raise ConfigError(f"rl.updates {settings.updates}: {num_rows} rows of a step cannot be parted in as many equal shares")
    share = num_rows // settings.updates
    batch_size = max(size for size in range(1, share + 1) if share % size == 0 and size <= config.batch_size)
    arguments = AsyncGRPOConfig(
        output_dir=str(job.stage_dir / "train"),
        max_steps=job.num_steps * settings.updates,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=share // batch_size,
        weight_sync_steps=settings.updates,
        logging_steps=settings.updates,  # each log tells of a whole step
        max_staleness=settings.max_lag,
        token_budget=0,  # as many rows as are said: of a set number of tokens a step would not know where it ends
        epsilon=config.grpo.clip_range,
        epsilon_high=method.clip_high or method.clip_range,
        temperature=job.temperature,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup_ratio,
        max_grad_norm=1.0,
        dtype="float32",
        bf16=job.train.use_gpu and config.dtype != "float32",
        use_cpu=not job.train.use_gpu,
        gradient_checkpointing=config.gradient_checkpointing,
        optim="adamw_torch",
        seed=config.seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    reader = StepReader(job, RowTokenizer(tokenizer, config.max_length), num_rows)
    writer = PolicyWriter(job, reader, tokenizer)
    trainer = StepTrainer(
        model,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": [""]}),  # it asks for one; questions come from the stage
        processing_class=tokenizer,
        callbacks=[writer],
        peft_config=LoraConfig(
            r=config.lora_r,
            lora_alpha=config.lora_alpha,
            lora_dropout=0.0,
            target_modules=list(config.target_modules),
            task_type="CAUSAL_LM",
        ),
        rollout_worker=reader,
        weight_transfer=writer,
    )
    trainer.remove_callback(PrinterCallback)
    writer.model = trainer.model
    if job.train.start_dir:
        set_peft_model_state_dict(trainer.model, load_peft_weights(str(job.train.start_dir), device="cpu"))
    AttentionInterface.register(TREE_ATTENTION, PathAttention())
    return trainer


class StepTrainer(AsyncGRPOTrainer):
    """TRL's trainer for steps that may wait for each other, with the learning rates of the stage."""

    def __init__(self, model: str, *, args: AsyncGRPOConfig, **options: Any) -> None:
        # It asks CUDA what the device can do, for a figure of its log, where there is no GPU too.
        with mock.patch.object(*_ASKS_CUDA, return_value=None) if args.use_cpu else nullcontext():
            super().__init__(model, args=args, **options)

    def get_train_dataloader(self) -> Any:
        """The loader without Accelerate's around it, which looks a batch ahead: the last batch of a step would wait for the first
        of the next, which with `rl.max_lag` 0 is drawn from the policy after it."""
        return super().get_train_dataloader().base_dataloader  # pyright: ignore[reportAttributeAccessIssue]

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The schedule of `compute_rate`."""
        num_warmup = self.args.get_warmup_steps(num_training_steps)
        rate = partial(compute_rate, num_warmup=num_warmup, num_steps=num_training_steps)
        self.lr_scheduler = LambdaLR(cast(torch.optim.Optimizer, optimizer or self.optimizer), rate)
        return self.lr_scheduler


class PathAttention:
    """Attention of tokens that several rows share, each along the paths of its own rows, by PyTorch's kernels and a mask.

    It stands in for TRL's, which fetches FlashAttention 3 from the Hub. The mask is made once a batch, and is as large as the
    square of the batch's tokens.
    """

    def __init__(self) -> None:
        self._paths, self._mask = torch.empty(0), torch.empty(0)

    def __call__(self, module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **options: Any) -> Any:
        """As transformers calls it, with the segments of `TreeRow.pack` in the options."""
        if self._paths is not (paths := options["tree_kv_index"]):
            self._paths, self._mask = paths, see_paths(paths, options["tree_cu_seqlens_q"], options["tree_cu_seqlens_k"])
        return sdpa_attention_forward(module, query, key, value, self._mask, scaling=options["scaling"], is_causal=False)


def see_paths(paths: torch.Tensor, segment_ends: torch.Tensor, path_ends: torch.Tensor) -> torch.Tensor:
    """The mask of a packed batch: a token sees those on the path of its segment that are not after it.

    Args:
        paths: places of the tokens on the path of each segment, itself included.
        segment_ends: in the batch, after a 0.
        path_ends: in `paths`, after a 0.
    """
    num_tokens = int(segment_ends[-1])
    numbers = torch.arange(len(segment_ends) - 1, device=paths.device)
    on_path = torch.zeros(len(numbers), num_tokens, dtype=torch.bool, device=paths.device)
    on_path[numbers.repeat_interleave(path_ends.diff()), paths] = True
    return on_path[numbers.repeat_interleave(segment_ends.diff())].tril()[None, None]


class StepReader:
    """TRL's `RolloutWorkerProtocol`: reads the rows of one step after the other, as the stage writes them, into TRL's buffer.

    The stage is as far ahead as `rl.max_lag` allows, so nothing is ever too old for the trainer.
    """

    def __init__(self, job: LearningJob, tokenizer: RowTokenizer, num_rows: int) -> None:
        self.rollout_buffer: Any = queue.Queue[RolloutSample]()
        self.metrics_queue: Any = queue.Queue[dict[str, Any]]()
        self.began: dict[int, float] = {}
        self.figures: dict[int, dict[str, int]] = {}
        self._job, self._tokenizer, self._num_rows = job, tokenizer, num_rows
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._last = list[dict[str, Any]]()

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._run, name="rows", daemon=True).start()

    def stop(self) -> None:
        """Read no more."""
        self._ended.set()

    def update_model_version(self, model_version: int) -> None:
        """Nothing: the ledger says which policy drew a step."""

    def check_health(self, stale_after_s: float) -> None:
        """Raise why no more rows come. The stage says itself when rollouts fail, so no time is too long to wait."""
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            for step in range(1, self._job.num_steps + 1):
                path = locate_step(self._job.stage_dir, step) / ROWS_NAME
                while not path.exists():
                    if self._job.stop_path.exists():
                        raise EndedError
                    if self._ended.wait(_POLL_S):
                        return
                self.began[step] = time.monotonic()
                policy = StepLedger(self._job.stage_dir / LEDGER_NAME).find_policy(step)
                assert policy is not None, "a step is begun before its rows are written"
                for sample in self._read(path, step, policy):
                    self.rollout_buffer.put(sample)
        except BaseException as error:  # told to the trainer, which waits
            self._error = error

    def _read(self, path: Path, step: int, policy: int) -> Iterator[RolloutSample]:
        """The samples of a step, those of a question together, for TRL to share what they begin with."""
        rows = list(read_rows(path))
        questions = {name_row(row, place): str(row["question_id"]) for place, row in enumerate(rows, start=1)}
        try:
            learned = self._job.train.config.grpo.tokenize(rows, self._tokenizer).rows
        except AllTooLongError:
            learned = []
        self.figures[step] = {"rows": min(len(learned), self._num_rows), "rows_left_out": max(0, len(learned) - self._num_rows)}
        if len(learned) > self._num_rows:
            learned = random.Random(f"{self._job.train.config.seed} {step}").sample(learned, self._num_rows)
        for row in learned:
            row["question"] = questions[row["name"]]
        self._last = learned or self._last
        if not self._last:
            raise TrainError(f"{path}: the samples of every question earned the same. Take more, or harder ones.")
        missing = islice(cycle(self._last), self._num_rows - len(learned))
        filled = learned + [row | {"advantage": 0.0} for row in missing]
        filled.sort(key=lambda row: row["question"])
        numbers = {question: number for number, question in enumerate(sorted({row["question"] for row in filled}))}
        return (build_sample(row, policy + 1, step * self._num_rows + numbers[row["question"]]) for row in filled)


def build_sample(row: dict[str, Any], version: int, group: int) -> RolloutSample:
    """A tokenized row as TRL takes it. TRL counts versions from 1, the policy that training starts from."""
    drawn = np.array(row["labels"]) != IGNORED_LABEL
    log_probabilities = np.zeros(len(drawn), dtype=np.float32)
    log_probabilities[drawn] = row["engine_log_probabilities"]
    return RolloutSample(
        prompt=[],
        completion=[],
        input_ids=np.array(row["input_ids"]),
        completion_mask=drawn.astype(np.int64),
        old_log_probs=log_probabilities,
        advantage=row["advantage"],
        model_version=version,
        group_id=group,
        metrics={},
    )


class PolicyWriter(TrainerCallback):
    """TRL's `WeightTransferProtocol`: leaves each policy as an adapter's folder, with the figures of its step, as the stage does.

    TRL transfers the weights of a step before it logs what the step came to. Nothing changes them in between, so that the folder
    is written with the log.
    """

    rank = 0

    def __init__(self, job: LearningJob, reader: StepReader, tokenizer: Any) -> None:
        self.model: Any = None
        self._job, self._reader, self._tokenizer = job, reader, tokenizer
        self._step = 0
        self._began = self._left = time.monotonic()

    def init_weight_transfer(self) -> None:
        """Leave the policy that training starts from."""
        self._leave({})

    def pause(self) -> None:
        """Nothing: engines go on with the adapter that they have."""

    def resume(self) -> None:
        """Nothing, as for `pause`."""

    def destroy(self) -> None:
        """Nothing: what was written stays."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Nothing yet: see `on_log`. The merged weights that TRL offers are not asked for."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Leave the policy of a step."""
        if logs is None or "loss" not in logs:  # of the whole training, at its end
            return
        figures = {name: logs[of] for of, name in _SEEN.items() if isinstance(logs.get(of), int | float)}
        if not all(map(math.isfinite, figures.values())):
            raise NotFiniteError(f"rl step {self._step}: {figures} is not finite. Lower finetune.learning_rate.")
        now = time.monotonic()
        times = {"train_seconds": now - max(self._left, self._reader.began[self._step]), "seconds": now - self._began}
        self._leave(figures | self._reader.figures[self._step] | {name: round(value, 2) for name, value in times.items()})

    def save(self, folder: Path) -> None:
        """Write adapter and tokenizer, as `PolicyLearner.save` does."""
        self.model.save_pretrained(str(folder), selected_adapters=["default"])
        self._tokenizer.save_pretrained(str(folder))
        if name := find_not_finite(folder / ADAPTER_WEIGHTS_NAME):
            raise NotFiniteError(f"rl step {self._step}: {name} is not finite. Lower finetune.learning_rate.")

    def _leave(self, figures: dict[str, Any]) -> None:
        leave_policy(self, self._job, self._step, figures)
        self._left = time.monotonic()
        self._step += 1

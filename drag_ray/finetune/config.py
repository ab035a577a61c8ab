"""Options of the finetune stage, and the job of a training process."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, ValidationInfo, field_validator, model_serializer

from drag_ray.config import Sections, check_files
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.adapter import list_unserved
from drag_ray.errors import ConfigError
from drag_ray.finetune.methods.method import Method
from drag_ray.finetune.methods.registry import METHOD_NAMES, Methods
from drag_ray.finetune.named import check_named, read_named

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[METHOD_NAMES]


Part = Literal["language", "vision", "projector"]

_LORA_OPTIONS = {"start", "lora_r", "lora_alpha", "lora_dropout", "target_modules", "lora", "quantization", "merge"}
"""Options that say nothing to a training of whole weights."""
_OWN_DATA = ("data", "validation_data")
_ADAPTER_OPTIONS = _LORA_OPTIONS | {
    *("parts", "part_learning_rates", "max_length", "deepspeed", "liger", "compare_prompts", "halve_batch")
}
"""Options that say nothing to an encoder."""


class FinetuneConfig(Methods):
    """Options of the training: of a LoRA adapter, of a model's own weights (parts), or of an encoder (methods cross_encoder and
    embed)."""

    method: MethodName = "sft"
    """training method, with the options of the section of that name; those of other methods are ignored"""
    data: str = ""
    """your own conversations to train on instead of the run's rows, with the methods sft and dpo: a file (messages, ShareGPT, or
    as described by a dataset_info.json in its folder), or the folder of a data set; see docs/train.md"""
    validation_data: str = ""
    """the same for the validation loss; by default the validation split of data, if it has one"""
    start: Literal["policy", "base"] = "policy"
    """start of training, and reference of dpo and grpo; policy: the adapter of engine.adapter, which collected the rows (the base
    model if none is named); base: a new adapter on the base model"""
    parts: tuple[Literal["adapter", Part], ...] = ("adapter",)
    """trained part: a LoRA adapter of the language model, or with the method sft the weights themselves of these parts, the
    others frozen: language, vision, and projector, between vision and language. The result is then a whole model"""
    part_learning_rates: dict[Part, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """learning rates of trained parts, instead of learning_rate"""
    epochs: float = Field(default=2.0, gt=0)
    """passes over the training rows"""
    learning_rate: float = Field(default=2e-4, gt=0)
    """peak learning rate, after a warm-up and before a cosine decay"""
    batch_size: int = Field(default=4, ge=1)
    """rows that a worker takes at once; for the method rerank questions, each with all its pages"""
    gradient_accumulation: int = Field(default=1, ge=1)
    """batches that a worker takes before each step"""
    halve_batch: bool = False
    """when GPU memory is exhausted, continue from the last checkpoint with half the batch size and twice the gradient
    accumulation, which learns the same; one row still has to fit"""
    warmup_ratio: float = Field(default=0.03, ge=0, lt=1)
    """share of the steps in which the learning rate rises"""
    lora_r: int = Field(default=16, ge=1)
    """rank of the adapter; if engine.adapter is trained further, its own lora_r, lora_alpha and target_modules are used"""
    lora_alpha: int = Field(default=32, ge=1)
    """scale of the adapter: its output is multiplied by alpha / r"""
    lora_dropout: float = Field(default=0.05, ge=0, lt=1)
    """dropout before the adapter with the method sft; the other methods compare probabilities or rewards, which dropout would
    blur, and train without it"""
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """layers of the language model that get an adapter; the vision part does not change"""
    lora: dict[str, Any] = Field(default_factory=dict)
    """further arguments of PEFT's LoraConfig by name, as {use_rslora = true} or {use_dora = true}"""
    quantization: Literal["none", "nf4", "int8"] = "none"
    """number format of the base model's linear layers while an adapter is trained, by bitsandbytes (pip install bitsandbytes
    on every node); nf4: four bits, doubly quantised (QLoRA); int8: eight bits. A merged model uses the unquantised base"""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """further arguments of transformers' TrainingArguments by name, as {weight_decay = 0.01, optim = "adamw_8bit",
    lr_scheduler_type = "linear", report_to = "trackio"}. Nothing is reported to anyone without report_to. rl takes none"""
    max_length: int = Field(default=2048, ge=16)
    """largest number of tokens of a row, including those of page images; longer rows are set aside and counted"""
    num_workers: int = Field(default=0, ge=0)
    """training processes; 0 takes one for each GPU of the nodes that see the run's folder, or one without a GPU"""
    min_workers: int = Field(default=0, ge=0)
    """fewest of num_workers to train with while the others have no node, taking more batches each before a step so that it learns
    from the same rows; 0 waits until all have one. Needs finetune.deepspeed off"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """where the workers train; auto takes GPUs if the cluster has one when the stage starts"""
    checkpoint_steps: int = Field(default=20, ge=1)
    """steps between checkpoints, and between evaluations"""
    deepspeed: Literal["auto", "off", "zero2", "zero3"] = "auto"
    """ZeRO stage; auto is zero2 on several GPUs, and off on one and on CPUs"""
    liger: bool = False
    """on GPUs: rotary embeddings, norms and feed-forward layers by the kernels of liger-kernel (pip install liger-kernel), for
    the families of models that it knows"""
    gradient_checkpointing: bool = False
    """recompute activations instead of keeping them: less memory, about a third slower"""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """number format of the base model's weights; auto is bfloat16 on GPUs and on CPUs that have instructions for it (AVX-512
    BF16, AMX, Arm's bf16), and float32 on others, where it is faster; zero3 on CPUs has float32 in any case. The
    adapter's are float32; with DeepSpeed on GPUs they are as the base's, and float32 in the optimizer"""
    compare_prompts: bool = True
    """refuse rows whose prompt differs in tokens or images from the one that the engine saw, if rows record it and engine.model
    collected them. Switch it off for example for a chat template that contains the date. The method grpo always compares"""
    merge: bool = True
    """also write a model with the adapter merged into its weights"""
    seed: int = Field(default=42, ge=0)
    """seed of the order of rows, the drawn rows, dropout and the adapter's initial weights"""
    limit: int = Field(default=0, ge=0)
    """training rows to take, of drawn questions; 0 takes all"""

    @property
    def chosen_method(self) -> Method:
        """The method of the name `method`, with its options."""
        chosen: Method = getattr(self, self.method)
        return chosen

    @property
    def trains_whole(self) -> bool:
        """True if weights of the model itself are trained, and the outcome is a whole model."""
        return not self.chosen_method.trains_adapter or self.parts != ("adapter",)

    @property
    def sees(self) -> bool:
        """True if weights are trained that only page images reach."""
        return not {"vision", "projector"}.isdisjoint(self.parts)

    @field_validator("parts")
    @classmethod
    def _stands_alone(cls, parts: tuple[str, ...]) -> tuple[str, ...]:
        if not parts or len(set(parts)) < len(parts) or ("adapter" in parts and len(parts) > 1):
            raise ValueError("expected adapter alone, or some of language, vision and projector, each once")
        return parts

    @field_validator("arguments", "lora")
    @classmethod
    def _reads_numbers(cls, named: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return read_named("lora" if info.field_name == "lora" else "arguments", named)

    @field_validator("method", mode="before")
    @classmethod
    def _names_the_successor(cls, method: Any) -> Any:
        if method == "kto":
            raise ValueError("'kto' is no method any more: choose dpo, which learns from the same queries in pairs")
        return method

    @property
    def merged_dtype(self) -> str:
        """The number format of the model that is written, whichever machine has trained it."""
        return "float32" if self.dtype == "float32" else "bfloat16"

    @model_serializer(mode="wrap")
    def _leave_out_unread(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The options as a run's identity and its records have them: what is not chosen changes nothing about a training."""
        options: dict[str, Any] = serialize(self)
        unread = {name for name in METHOD_NAMES if name != self.method} | {name for name in _OWN_DATA if not options[name]}
        if not self.chosen_method.trains_adapter:
            unread |= _ADAPTER_OPTIONS
        elif self.trains_whole:
            unread |= _LORA_OPTIONS
        return {name: value for name, value in options.items() if name not in unread}


@dataclass(frozen=True)
class FinetuneSections(Sections):
    """The sections of the finetune stage."""

    engine: EngineConfig
    finetune: FinetuneConfig

    def check(self) -> None:
        """Refuse to train what cannot be had. Raises ConfigError where the model is behind an endpoint, options exclude each
        other, or an argument is none or has an option."""
        if self.engine.backend == "openai":
            raise ConfigError(
                f"engine.backend openai: finetune trains weights, and those of {self.engine.model!r} stay behind its endpoint. "
                "To learn from its trajectories, name it as collect.teacher, and the model to train as engine.model with the "
                "backend vllm."
            )
        settings = self.finetune
        if (settings.data and settings.method not in ("sft", "dpo")) or (settings.validation_data and not settings.data):
            raise ConfigError(
                "finetune.data, finetune.validation_data: conversations of your own are learned by the methods sft and dpo, and "
                f"validation_data goes with data; the method is {settings.method}. Change the method, or leave them out."
            )
        check_files(self._list_own_data())
        check_named("arguments", settings.arguments)
        check_named("lora", settings.lora)
        if untrained := sorted(settings.part_learning_rates.keys() - set(settings.parts)):
            raise ConfigError(f"finetune.part_learning_rates: {untrained[0]} is not trained. Name it in finetune.parts.")
        if "lr_scheduler_kwargs" in settings.arguments and settings.arguments.get("lr_scheduler_type", "cosine") == "cosine":
            raise ConfigError(
                "finetune.arguments: lr_scheduler_kwargs says nothing to the stage's own cosine. Name another lr_scheduler_type, "
                "or leave it out."
            )
        if settings.quantization != "none" and settings.deepspeed == "zero3":
            raise ConfigError("finetune.quantization: ZeRO-3 cannot split quantised weights. Set finetune.deepspeed to zero2.")
        if settings.min_workers and (settings.deepspeed != "off" or 0 < settings.num_workers < settings.min_workers):
            raise ConfigError(
                f"finetune.min_workers {settings.min_workers}: expected at most num_workers, and finetune.deepspeed off: what "
                "ZeRO keeps in a checkpoint is for as many processes as wrote it. Set finetune.deepspeed to off."
            )
        if settings.trains_whole:
            self._check_whole()
        elif not settings.merge and (unserved := list_unserved(settings.lora)):
            raise ConfigError(
                f"finetune.lora: {unserved[0]}: of such an adapter nothing but the merged model is used. Leave out "
                "--no-finetune.merge, or finetune.lora."
            )
        if settings.parts != ("adapter",):
            self._check_parts()

    def _check_whole(self) -> None:
        settings = self.finetune
        if unread := [name for name in ("lora", "quantization") if getattr(settings, name) != getattr(FinetuneConfig(), name)]:
            of_parts = settings.chosen_method.trains_adapter
            chosen = f"finetune.parts {', '.join(settings.parts)}" if of_parts else f"finetune.method {settings.method}"
            raise ConfigError(
                f"finetune.{unread[0]}: {chosen} trains own weights of a model, and no adapter. Leave one of them out."
            )

    def _check_parts(self) -> None:
        named = f"finetune.parts {', '.join(self.finetune.parts)}"
        if self.finetune.method != "sft":
            raise ConfigError(
                f"{named}: the method {self.finetune.method} trains others. Take the method sft, or leave out finetune.parts."
            )
        if self.engine.adapter and self.finetune.start == "policy":
            raise ConfigError(
                f"{named}: weights of engine.model are trained, and engine.adapter would be left away. Merge it first "
                f"(drag-ray merge {self.engine.adapter} OUT) and name OUT as engine.model, or set finetune.start to base."
            )

    def find_start(self) -> Path | None:
        """The folder of the adapter whose weights are trained on; None for a new adapter."""
        starts = self.finetune.start == "policy" and not self.finetune.trains_whole
        return Path(self.engine.adapter) if self.engine.adapter and starts else None

    def list_sources(self) -> dict[str, Path | tuple[Path, ...]]:
        """The adapter that training starts from, and conversations of the user's own with what describes them."""
        own = {option: (path, path.with_name("dataset_info.json")) for option, path in self._list_own_data().items()}
        return {**(self.engine.list_sources() if self.find_start() else {}), **own}

    def _list_own_data(self) -> dict[str, Path]:
        named = {f"finetune.{name}": getattr(self.finetune, name) for name in _OWN_DATA}
        return {option: Path(path).expanduser() for option, path in named.items() if path}

    def list_unread(self) -> tuple[str, ...]:
        """The run's own rows and pages, where others are learned from."""
        return ("format", "index") if self.finetune.data else ()


@dataclass(frozen=True)
class TrainJob:
    """Everything that a training process needs to know.

    Paths are absolute; `image_dirs` are the stores of images, none where the run has no index. `start_dir` is the adapter whose
    weights are trained on, None for a new one. `num_threads` counts on a CPU only. `compares_prompts` is that of `RowTokenizer`.
    `scratch_dir` takes a checkpoint until it is reported; None for a folder of the system's.
    """

    config: FinetuneConfig
    model: str
    train_path: Path
    validation_path: Path
    image_dirs: tuple[Path, ...]
    use_gpu: bool
    num_workers: int
    num_threads: int
    start_dir: Path | None = None
    compares_prompts: bool = True
    scratch_dir: Path | None = None

"""Options of the finetune stage."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from drag_ray.config import BaseConfig, Sections
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.masks import Mask


class FinetuneConfig(BaseConfig):
    """How the LoRA adapter is trained."""

    format: Literal["sft_query", "sft_trajectory", "sft_context", "rejection", "dpo", "kto", "reward", "rl_steps"] = "sft_query"
    """training rows to learn from, a folder of the format stage; dpo learns from preference pairs, best from a policy that was
    tuned and collected before (engine.model), with a tenth of the learning_rate; so do kto, from single queries that are wanted
    or not, and rl_steps, by reinforcement learning from everything that the policy did; reward makes a reward model, which
    writes nothing and scores queries"""
    preference_beta: float = Field(default=0.1, gt=0)
    """how close dpo and kto keep the policy to the one that it starts from; less lets it go further"""
    rl_clip_range: float = Field(default=0.2, gt=0, lt=1)
    """rl_steps: by which share a token may become likelier or less likely before it is left alone"""
    rl_kl_weight: float = Field(default=0.04, ge=0)
    """rl_steps: what it costs to go away from the policy that collected; 0 lets clipping alone hold it"""
    mask: Mask = "assistant"
    """what of a learned reply counts: search_only its search, search_think the reasoning too, assistant all of it; none learns
    the prompts as well"""
    epochs: float = Field(default=2.0, gt=0)
    """passes over the training rows"""
    learning_rate: float = Field(default=2e-4, gt=0, allow_inf_nan=False)
    """highest learning rate; it warms up, then falls as a cosine"""
    batch_size: int = Field(default=4, ge=1)
    """rows a worker takes at once"""
    gradient_accumulation: int = Field(default=1, ge=1)
    """batches a worker takes before each step"""
    warmup_ratio: float = Field(default=0.03, ge=0, lt=1)
    """share of the steps in which the learning rate rises"""
    lora_r: int = Field(default=16, ge=1)
    """rank of the adapter"""
    lora_alpha: int = Field(default=32, ge=1)
    """scale of the adapter: its output counts alpha / r"""
    lora_dropout: float = Field(default=0.05, ge=0, lt=1)
    """dropout before the adapter"""
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """layers of the language model that get an adapter; the vision part of a vision-language model stays as it is"""
    max_length: int = Field(default=2048, ge=16)
    """tokens of the longest row, those of page images included; longer ones are set aside and counted"""
    num_workers: int = Field(default=0, ge=0)
    """training processes; 0 takes one per GPU, or one where there is no GPU"""
    image_workers: int = Field(default=2, ge=0)
    """processes that make page images ready ahead of each training process; 0 lets training wait for them"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """where the workers train; auto takes GPUs if the cluster has one when the stage starts"""
    checkpoint_steps: int = Field(default=20, ge=1)
    """steps between checkpoints, and between evaluations"""
    max_failures: int = Field(default=2, ge=0)
    """times that training goes on from its last checkpoint after a worker died"""
    deepspeed: Literal["auto", "off", "zero2", "zero3"] = "auto"
    """ZeRO stage; auto is zero2 on several GPUs, and off on one and on CPUs"""
    gradient_checkpointing: bool = False
    """compute activations twice instead of keeping them: less memory, about a third slower"""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """type of the base model's weights; the adapter's are float32"""
    merge: bool = True
    """also write a model with the adapter merged into its weights"""
    seed: int = Field(default=42, ge=0)
    """order of the rows, dropout and the adapter's first weights"""
    limit: int = Field(default=0, ge=0)
    """training rows to take; 0 takes all"""

    @model_validator(mode="after")
    def _only_supervised_rows_have_a_mask(self) -> "FinetuneConfig":
        if self.format in ("dpo", "kto", "reward", "rl_steps") and self.mask != "assistant":
            raise ValueError(f"mask {self.mask} is for supervised rows; {self.format} takes whole replies. Leave it at assistant")
        return self

    @model_validator(mode="after")
    def _wanted_and_unwanted_queries_stand_beside_others(self) -> "FinetuneConfig":
        if self.format == "kto" and self.batch_size == 1:
            raise ValueError(
                "batch_size 1: kto pairs the prompts of a batch with each other's replies. Set batch_size to 2 or more"
            )
        return self


@dataclass(frozen=True)
class FinetuneSections(Sections):
    """What the finetune stage receives."""

    engine: EngineConfig
    finetune: FinetuneConfig

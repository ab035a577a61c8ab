"""A training method: its options, and what it makes of training rows.

PyTorch, TRL and sentence-transformers are imported in the functions that need them, since options are read, for `--help` too,
without any.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NotRequired, TypedDict

from drag_ray.config import BaseConfig
from drag_ray.engine.conversation import Row
from drag_ray.engine.models.adapter import WRITING_TASK
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer, TokenizedRows

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import Trainer, TrainingArguments

    from drag_ray.finetune.rows.images import TrainingImages


class TrainerOptions(TypedDict):
    """Arguments of all trainers. The datasets hold tokenized rows; a model that has an adapter already gets no new one, nor does
    one whose own weights learn, of whose parts some may have `part_rates`."""

    model: Any
    args: Any
    train_dataset: "Dataset"
    eval_dataset: "Dataset | None"
    processing_class: Any
    peft_config: "LoraConfig | None"
    part_rates: NotRequired[Mapping[str, float]]


class Method(BaseConfig, ABC):
    """A training method with its options, which are the fields of its class.

    Attributes:
        row_types: by the names of the row formats (folders of the format stage) that it can learn from, what it reads of a row.
        needs_tokens: whether it learns from the very tokens that were drawn, which an endpoint does not tell.
        trains_adapter: whether what it trains is an adapter of engine.model.
        trains_policy: whether what it trains writes queries, so that a round can begin with it.
        purpose: what a model does that it has trained.
        library, pipeline_tag: the words of its card for the Hugging Face Hub.
        why_nothing_is_learned: what to say, and to do, where all rows are without advantage.
    """

    row_types: ClassVar[Mapping[str, type[Row]]]
    needs_tokens: ClassVar[bool] = False
    trains_adapter: ClassVar[bool] = True
    trains_policy: ClassVar[bool] = True
    purpose: ClassVar[str] = "writes search queries"
    library: ClassVar[str] = "peft"
    pipeline_tag: ClassVar[str] = "text-generation"
    why_nothing_is_learned: ClassVar[str] = (
        "the samples of a question earned the same, so none is better than another. Collect more samples a question "
        "(collect.samples_per_question), at a higher temperature (collect.presets)."
    )

    @property
    def row_format(self) -> str:
        """The format of the rows that it learns from with these options."""
        return next(iter(self.row_types))

    def find_start_model(self, engine_model: str) -> str:
        """The model that it trains, of the one that engine.model names unless its options name another."""
        return engine_model

    def count(self, rows: TokenizedRows) -> dict[str, int]:
        """Counts of that which is learned of training rows, by name."""
        return {}

    def write_note(self, folder: Path, row_options: Mapping[str, Any], index_fingerprint: str) -> None:
        """Note beside a trained model how it is asked, where the agent that collected does not say.

        Args:
            folder: its folder.
            row_options: of `format`, that its rows were written with; none where they are of elsewhere.
            index_fingerprint: of the index that they are of; empty where nobody knows.
        """

    def diagnose(self, counts: Mapping[str, Any], rows: Iterable[Row]) -> str:
        """The reasons against using what was trained; empty where nothing does.

        Args:
            counts: of the stage.
            rows: of the validation side.
        """
        return ""


class AdapterMethod(Method):
    """A method that trains a LoRA adapter of a causal model, or what `finetune.parts` names of the model, by a trainer of TRL.

    Attributes:
        task: PEFT's name of what the trained model does.
        is_asked_as_agent: whether that is asked with the prompts of the agent that collected, which are noted beside it then.
        uses_dropout: whether it trains with dropout. What compares the probabilities of two policies, or the rewards of two
            replies, would compare the noise of dropout too.
    """

    task: ClassVar[str] = WRITING_TASK
    uses_dropout: ClassVar[bool] = False
    is_asked_as_agent: ClassVar[bool] = True

    def count(self, rows: TokenizedRows) -> dict[str, int]:
        """Tokens and images."""
        images = sum(len(row["image_keys"]) for row in rows.rows)
        return {"trained_tokens": rows.num_trained_tokens, "images": images}

    @abstractmethod
    def tokenize(self, rows: Iterable[Row], tokenizer: RowTokenizer) -> TokenizedRows:
        """Training rows -> what its collator makes batches of. Raises what `RowTokenizer.tokenize_rows` does."""

    def load_model(self, model: str, dtype: str, quantization: str) -> Any:
        """The model to train, of the name or in the folder `model`. Raises what `load_model` and `load_reward_model` do."""
        from drag_ray.engine.models.pretrained import load_model

        return load_model(model, dtype, quantization)

    def build_arguments(self, options: dict[str, Any]) -> "TrainingArguments":
        """The trainer's arguments, of which `options` are those that all have: `SFTConfig`, for rows that are tokenized."""
        from trl.trainer.sft_config import SFTConfig

        return SFTConfig(**options, dataset_kwargs={"skip_prepare_dataset": True})

    @abstractmethod
    def build_trainer(self, options: TrainerOptions, images: "TrainingImages | None") -> "Trainer":
        """The trainer, with its collator; `images` are those of the rows."""

    def score(self, model: Any, inputs: "dict[str, torch.Tensor]") -> "torch.Tensor":
        """The model's scores of a batch of `RowCollator`: of one that writes, the log-probabilities of its trained tokens."""
        from drag_ray.finetune.trainers.trained_tokens import compute_log_probabilities

        return compute_log_probabilities(model, inputs, fused=False)[0]

"""A method is a module and a line of the registry: one that is made here is trained by code that has never heard of it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from conversation_cases import say
from embedded_tokenizer import VOCABULARY
from pydantic import ValidationError, create_model
from training_cases import SHAPE, describe_job
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from drag_ray.engine.conversation import PromptCompletion, Row
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.finetune.trainer import train

pytestmark = pytest.mark.seconds


class Parrot(SFT):
    """Learns the prompts, so often."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"crackers": PromptCompletion}

    repeats: int = 2
    """how often"""

    def tokenize(self, rows: Any, tokenizer: Any) -> Any:
        return SFT(mask="none").tokenize([*rows] * self.repeats, tokenizer)


ParrotConfig = create_model(
    "ParrotConfig", __base__=FinetuneConfig, parrot=(Parrot, Parrot()), method=(Literal["parrot"], "parrot")
)


def test_another_method_is_trained(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    shape: dict[str, Any] = SHAPE | {"vocab_size": VOCABULARY}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    row = {"prompt": [say("user", "Who rows?")], "completion": [say("assistant", "Polly")]}
    (tmp_path / "train.jsonl").write_text(json.dumps(row))
    (tmp_path / "validation.jsonl").write_text("")
    options = {"parrot": Parrot(repeats=3), "epochs": 1, "dtype": "float32", "warmup_ratio": 0, "device": "cpu"}
    job = describe_job(ParrotConfig.model_validate(options), tmp_path / "model", tmp_path)
    outcome = train(
        job,
        tokenize_training_rows(job),
        lambda metrics, checkpoint_dir: shutil.copytree(checkpoint_dir, tmp_path / "adapter"),
        None,
    )
    whole = tokenizer.apply_chat_template([*row["prompt"], *row["completion"]], return_dict=False)
    assert outcome["counts"]["rows"] == 3
    assert outcome["counts"]["trained_tokens"] == 3 * len(whole)
    assert (tmp_path / "adapter" / "adapter_config.json").exists()


def test_records_hold_the_options_of_the_chosen_method_alone() -> None:
    assert FinetuneConfig(method="dpo").model_dump()["dpo"] == {"beta": 0.1}
    assert {"sft", "reward", "grpo"} & FinetuneConfig(method="dpo").model_dump().keys() == set()
    assert FinetuneConfig.model_validate(FinetuneConfig(method="dpo").model_dump()) == FinetuneConfig(method="dpo")


def test_a_method_that_is_unknown_or_gone_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValidationError, match="'sft', 'dpo', 'reward', 'rerank', 'cross_encoder', 'embed' or 'grpo'"):
        FinetuneConfig(method="ppo")
    with pytest.raises(ValidationError, match="'kto' is no method any more: choose dpo"):
        FinetuneConfig(method="kto")

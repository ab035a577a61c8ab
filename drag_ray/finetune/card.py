"""The card of an adapter, in Hugging Face's form: what it learned, from what, how far that is known to help, and what it is."""

from pathlib import Path
from typing import Any

from drag_ray.engine.models.adapter import ADAPTER_WEIGHTS_NAME, REWARD_TASK, BaseModel
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.stage_runs import provenance
from drag_ray.storage.artifacts import compute_file_fingerprint

CARD_NAME = "README.md"
EMBEDDED_ORIGIN = "HuggingFaceTB/SmolLM2-135M-Instruct"
_LOSSES = ("first_loss", "last_loss", "eval_loss_before", "eval_loss_after", "eval_pair_accuracy")

_TEXT = """
# A search policy

A LoRA adapter of `{base}` that {does} for one collection of documents, trained by drag_ray {version} with
the method `{method}` on search trajectories over that collection.

## How it was trained

{options}

| | |
|---|---:|
{counts}

## How good it is

| loss on rows of its own format | |
|---|---:|
{losses}

A loss does not say how well it finds pages. That is measured against the base model and the question itself, on questions that
training did not see, by the stage `evaluate`: see `evaluate/report.md` of the run. What is not there has not been measured.

## Limits

- It was trained for one collection and one search index, and for the prompts in `drag_ray_agent.json`, if that is beside it;
  asked otherwise, nothing is known of it.
- What it writes can be wrong, and can cite pages that do not exist.
- It may repeat words of the documents and questions that it learned from: look at their licence and at what is private in them
  before you share it. The licence of the base model holds for it too.

## What it is

{hashes}
"""


def write_card(
    adapter_dir: Path,
    settings: FinetuneConfig,
    base: BaseModel,
    counts: dict[str, Any],
    fingerprints: dict[str, str],
) -> None:
    """Write `README.md` beside the weights.

    Args:
        adapter_dir: holds the weights, whose hash the card names.
        settings: how it was trained.
        base: the model that it belongs to.
        counts: of the training, as the stage returns them.
        fingerprints: of what it was trained from, by stage.
    """
    from huggingface_hub import ModelCard, ModelCardData

    is_reward_model = settings.chosen_method.task == REWARD_TASK
    origin = EMBEDDED_ORIGIN if base.name == "embedded" else base.name
    data = ModelCardData(
        # The Hub knows names, no folders.
        base_model=None if Path(origin).is_dir() else origin,
        library_name="peft",
        pipeline_tag="text-classification" if is_reward_model else "text-generation",
        tags=["lora", "drag_ray", settings.method],
    )
    hashes = {
        ADAPTER_WEIGHTS_NAME: compute_file_fingerprint(adapter_dir / ADAPTER_WEIGHTS_NAME),
        "config of the base model": base.fingerprint,
        **{f"stage {stage}": fingerprint for stage, fingerprint in fingerprints.items()},
        "commit": provenance.read_commit() or "unknown",
    }
    text = _TEXT.format(
        base=Path(origin).name if Path(origin).is_dir() else origin,
        does=settings.chosen_method.purpose,
        version=provenance.__version__,
        method=settings.method,
        options="\n".join(f"- {name}: {value}" for name, value in settings.model_dump(mode="json").items()),
        counts=_write_rows({name: value for name, value in counts.items() if name not in _LOSSES}),
        losses=_write_rows({name: value for name, value in counts.items() if name in _LOSSES}),
        hashes="\n".join(f"- {name}: `{value}`" for name, value in hashes.items()),
    )
    ModelCard(f"---\n{data.to_yaml()}\n---\n{text}").save(adapter_dir / CARD_NAME)


def _write_rows(values: dict[str, Any]) -> str:
    return "\n".join(f"| {name} | {'not measured' if value is None else value} |" for name, value in values.items())

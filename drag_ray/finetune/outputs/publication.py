"""The folder of what was trained, made from the last checkpoint: weights and card of an adapter, with the merged model if wanted,
of a whole model, or of an encoder.

The card, in Hugging Face's form, says what it learned, from what, how far that is known to help, and how it is asked.
"""

import contextlib
import shutil
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peft import PeftModel

from drag_ray.agent.record import write_record
from drag_ray.engine.models.adapter import BaseModel, check_adapter_fits, is_reward_model, read_base_model, write_base_model
from drag_ray.engine.models.embedded import EMBEDDED, MINILM
from drag_ray.engine.models.model_files import WEIGHTS_PATTERN
from drag_ray.engine.models.model_folder import locate_model, resolve_model
from drag_ray.engine.models.pretrained import load_model, load_processor, load_reward_model, load_tokenizer
from drag_ray.errors import TrainError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.methods.encoder import EncoderMethod, Probe
from drag_ray.finetune.methods.method import AdapterMethod
from drag_ray.finetune.model_parts import check_trained
from drag_ray.finetune.outputs.checkpoints import saving
from drag_ray.finetune.training_folder import ADAPTER_DIR_NAME, ENCODER_DIR_NAME, MERGED_DIR_NAME, MODEL_DIR_NAME, Description
from drag_ray.stage_runs import provenance
from drag_ray.storage.artifacts import compute_file_fingerprint
from drag_ray.storage.file_access import list_folder, writing

CARD_NAME = "README.md"
_EMBEDDED_ORIGINS = {EMBEDDED: "HuggingFaceTB/SmolLM2-135M-Instruct", MINILM: "sentence-transformers/all-MiniLM-L6-v2"}
_LOSSES = ("first_loss", "last_loss", "eval_loss_before", "eval_loss_after", "eval_pair_accuracy")

_CARD = """
# {title}

{kind} of `{base}` that {does} for one collection of documents, trained by drag_ray {version} with
the method `{method}` on {learned_from} that collection.

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

{limits}

## What it is

{hashes}
"""


@dataclass(frozen=True)
class CardKind:
    """The part of a card that is the same for all models of a kind."""

    title: str
    kind: str
    learned_from: str
    limits: str
    tags: tuple[str, ...]


_OF_ADAPTER = CardKind(
    title="A search policy",
    kind="A LoRA adapter",
    learned_from="search trajectories over",
    limits="""- It was trained for one collection and one search index, and for the prompts in `drag_ray_agent.json`, if that is
  beside it; asked otherwise, nothing is known of it.
- What it writes can be wrong, and can cite pages that do not exist.
- It may repeat words of the documents and questions that it learned from: look at their licence and at what is private in them
  before you share it. The licence of the base model holds for it too.""",
    tags=("lora",),
)
_OF_MODEL = replace(_OF_ADAPTER, kind="A fine-tuned copy", tags=())
_OF_ENCODER = CardKind(
    title="A search encoder",
    kind="A fine-tuned copy",
    learned_from="questions with the pages that answer them, of",
    limits="""- It was trained for one collection. On another it can be worse than the model it comes from: compare both first.
- Its weights have learned from the questions and documents: look at their licence and at what is private in them before you
  share it. The licence of the base model holds for it too.""",
    tags=("sentence-transformers",),
)


def write_card(
    folder: Path, kind: CardKind, settings: FinetuneConfig, base: BaseModel, counts: dict[str, Any], fingerprints: dict[str, str]
) -> None:
    """Write `README.md` beside the weights."""
    from huggingface_hub import ModelCard, ModelCardData

    origin = _EMBEDDED_ORIGINS.get(base.name, base.name)
    data = ModelCardData(
        # The Hub knows names, no folders.
        base_model=None if Path(origin).is_dir() else origin,
        library_name="transformers" if kind is _OF_MODEL else settings.chosen_method.library,
        pipeline_tag=settings.chosen_method.pipeline_tag,
        tags=[*kind.tags, "drag_ray", settings.method],
    )
    hashes = {
        **{path.name: compute_file_fingerprint(path) for path in sorted(folder.glob(WEIGHTS_PATTERN))},
        "config of the base model": base.fingerprint,
        **{f"stage {stage}": fingerprint for stage, fingerprint in fingerprints.items()},
        "commit": provenance.read_commit() or "unknown",
    }
    text = _CARD.format(
        title=kind.title,
        kind=kind.kind,
        learned_from=kind.learned_from,
        limits=kind.limits,
        base=Path(origin).name if Path(origin).is_dir() else origin,
        does=settings.chosen_method.purpose,
        version=provenance.__version__,
        method=settings.method,
        options="\n".join(f"- {name}: {value}" for name, value in settings.model_dump(mode="json").items()),
        counts=_write_card_rows({name: value for name, value in counts.items() if name not in _LOSSES}),
        losses=_write_card_rows({name: value for name, value in counts.items() if name in _LOSSES}),
        hashes="\n".join(f"- {name}: `{value}`" for name, value in hashes.items()),
    )
    ModelCard(f"---\n{data.to_yaml()}\n---\n{text}").save(folder / CARD_NAME)


def _write_card_rows(values: dict[str, Any]) -> str:
    return "\n".join(f"| {name} | {'not measured' if value is None else value} |" for name, value in values.items())


def merge_adapter(base_dir: str | Path, adapter_dir: Path, out_dir: Path, dtype: str = "bfloat16") -> None:
    """Write the base model with the adapter added to its weights: a folder that transformers and vLLM load by itself.

    It holds config, generation config, weights, tokenizer and chat template, and of a vision-language model the processor.
    `out_dir` is replaced, and is there only when it is whole. Raises ArtifactError where no space is left, or the folder cannot
    be written, and TrainError where the adapter belongs to another base model, or merging gives weights that are not finite.
    """
    check_adapter_fits(read_base_model(str(base_dir)), adapter_dir)
    load = load_reward_model if is_reward_model(adapter_dir) else load_model
    adapted = PeftModel.from_pretrained(load(base_dir, dtype), str(adapter_dir))
    try:
        merged: Any = adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise TrainError(
            f"{adapter_dir}: cannot be merged into {base_dir} ({error}). Train again with a lower finetune.learning_rate."
        ) from None
    remedy = "Free some space, choose another place, or leave the merged model of a run out (--no-finetune.merge)."
    with saving(out_dir, remedy), _building(out_dir) as scratch_dir:
        _write_model(merged, base_dir, scratch_dir)


def _write_model(model: Any, base_dir: str | Path, folder: Path) -> None:
    """Write config, generation config and weights of a model, with tokenizer, chat template and processor of its base."""
    model.save_pretrained(folder)
    load_tokenizer(base_dir).save_pretrained(folder)
    processor = load_processor(base_dir)
    if processor is not None:
        processor.save_pretrained(folder)


@contextlib.contextmanager
def _building(folder: Path) -> Generator[Path]:
    """The name of a folder to write in the place of this one, which is there only when that is whole."""
    scratch_dir = folder.with_name(f".{folder.name}")
    for leftover in (folder, scratch_dir):
        if leftover.exists():
            shutil.rmtree(leftover)
    yield scratch_dir
    scratch_dir.rename(folder)


_ADAPTER_FILES = (
    "adapter_*",
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges*",
)


def publish_adapter(checkpoint_dir: Path, model: str, described: Description, start_dir: Path | None, stage_dir: Path) -> None:
    """Take the adapter out of a whole checkpoint, check, describe and merge it. Its folder is there only when it is whole.

    Raises:
        ArtifactError: no space is left, or the folder cannot be written.
        NotFiniteError: a weight is not finite.
        TrainError: the adapter has learned nothing, or cannot be merged.
    """
    from drag_ray.engine.models.adapter_weights import check_weights  # PyTorch takes seconds to import

    method = described.settings.chosen_method
    assert isinstance(method, AdapterMethod)
    base_dir = resolve_model(model)
    adapter_dir = stage_dir / ADAPTER_DIR_NAME
    with writing(adapter_dir):
        with _building(adapter_dir) as scratch_dir:
            scratch_dir.mkdir()
            for path in list_folder(checkpoint_dir):
                if any(path.match(pattern) for pattern in _ADAPTER_FILES):
                    shutil.copy2(path, scratch_dir)
            check_weights(scratch_dir, start_dir)
            base, settings = read_base_model(base_dir, name=model), described.settings
            write_base_model(scratch_dir, base)
            if described.record and method.is_asked_as_agent:
                write_record(scratch_dir, described.record)
            method.write_note(scratch_dir, described.row_options, described.index_fingerprint)
            write_card(scratch_dir, _OF_ADAPTER, settings, base, described.counts, described.fingerprints)
        if settings.merge:
            merge_adapter(base_dir, adapter_dir, stage_dir / MERGED_DIR_NAME, settings.merged_dtype)


def publish_model(checkpoint_dir: Path, model: str, described: Description, stage_dir: Path) -> None:
    """Take the model out of a whole checkpoint, compare it with its base, describe it. Its folder is there only when it is whole.

    Raises:
        ArtifactError: no space is left, or the folder cannot be written.
        NotFiniteError: a weight is not finite.
        TrainError: a part has learned nothing, or weights are missing.
    """
    base_dir, settings, model_dir = resolve_model(model), described.settings, stage_dir / MODEL_DIR_NAME
    trained = load_model(checkpoint_dir, settings.merged_dtype, is_checked=True)
    check_trained(load_model(base_dir, settings.merged_dtype), trained, settings.parts)
    with saving(model_dir), _building(model_dir) as scratch_dir:
        _write_model(trained, base_dir, scratch_dir)
        if described.record:
            write_record(scratch_dir, described.record)
        base = read_base_model(base_dir, name=model)
        write_card(scratch_dir, _OF_MODEL, settings, base, described.counts, described.fingerprints)


_TRAINING_STATE = (
    *("optimizer*", "scheduler*", "scaler*", "rng_state*", "trainer_state.json", "training_args.bin", "whole-*"),
    *(CARD_NAME, ".*"),
)
_SAME = 0.02
"""By which the scores of two devices and number formats may differ."""


def publish_encoder(checkpoint_dir: Path, model: str, described: Description, stage_dir: Path) -> None:
    """Take the encoder out of a whole checkpoint, prove and describe it. Its folder is there only when it is whole.

    The proof: whoever searches with the folder gets the scores that the trainer had at its end. Raises ArtifactError where no
    space is left, or the folder cannot be written; TrainError: what is written does not score as what was trained.
    """
    method = described.settings.chosen_method
    assert isinstance(method, EncoderMethod)
    encoder_dir = stage_dir / ENCODER_DIR_NAME
    with writing(encoder_dir), _building(encoder_dir) as scratch_dir:
        shutil.copytree(checkpoint_dir, scratch_dir, ignore=shutil.ignore_patterns(*_TRAINING_STATE))
        method.write_note(scratch_dir, described.row_options, described.index_fingerprint)
        if described.probe:
            _prove(method, scratch_dir, described.probe)
        base = read_base_model(str(locate_model(model, method.option)), name=model)
        write_card(scratch_dir, _describe_encoder(described), described.settings, base, described.counts, described.fingerprints)


def _describe_encoder(described: Description) -> CardKind:
    """The kind of an encoder, with the teacher whose scores it has learned."""
    if not described.counts.get("questions_distilled"):
        return _OF_ENCODER
    teacher = described.row_options.get("teacher", {}).get("model", "")
    named = f"`{Path(teacher).name if Path(teacher).is_dir() else teacher}`" if teacher else "a teacher that its rows do not name"
    return replace(
        _OF_ENCODER,
        learned_from=f"the scores that {named} gives to pages (distillation), and questions with the pages that answer them, of",
        limits=_OF_ENCODER.limits + f"\n- It can be wrong where {named} is, whose licence may hold for it too.",
        tags=(*_OF_ENCODER.tags, "distillation"),
    )


def _prove(method: EncoderMethod, folder: Path, probe: Probe) -> None:
    found = method.score_published(folder, probe["question"], probe["passages"])
    furthest = max(abs(one - other) for one, other in zip(found, probe["scores"], strict=True))
    if not furthest < _SAME * max(1.0, *map(abs, probe["scores"])):
        raise TrainError(
            f"{folder}: the model as it was written scores the pages of the first question otherwise than the trained one, by "
            f"{furthest:.3g}. Start the stage again: it resumes from its last checkpoint."
        )

"""Embedding models and cross-encoders for tests: tiny, with random weights, in the files of sentence-transformers and of CLIP."""

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    PreTrainedTokenizerFast,
)

from drag_ray.index import vector_parts
from drag_ray.search.config import EmbeddingConfig
from drag_ray.search.index import PAGES_NAME
from drag_ray.search.searcher import Searcher

WORDS = ("rotor", "speed", "limit", "fuel", "pump", "wing", "spar", "load", "oil", "filter", "query:", "page:")
_MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_SHAPE: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
_MODULES = "sentence_transformers.models."


def write_page_vectors(searcher: Searcher, model: Path, vectors_dir: Path) -> None:
    """Vectors of an index's pages, in windows of eight tokens, as the index stage makes them."""
    config = EmbeddingConfig(model=str(model), window_tokens=8, overlap_tokens=2)
    part = model.parent / "part.npz"
    vector_parts.WindowEmbedder(config, searcher.index_dir / PAGES_NAME).write(part, range(searcher.num_pages))
    vector_parts.merge_parts([part], vectors_dir, searcher.record.fingerprint, config)


def write_embedding_model(
    folder: Path,
    *,
    pooling: dict[str, Any] | None = None,
    modules: tuple[str, ...] = ("Transformer", "Pooling", "Normalize"),
    limits: dict[str, Any] | None = None,
    said: dict[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """A BERT of one layer whose tokens are `WORDS`; the arguments are what the JSON files hold."""
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    BertModel(BertConfig(vocab_size=len(WORDS) + len(_MARKS), max_position_embeddings=64, **_SHAPE)).save_pretrained(folder)
    _build_tokenizer().save_pretrained(folder)
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    listed = [
        {"idx": place, "name": str(place), "type": name if "." in name else _MODULES + name, "path": paths.get(name, name)}
        for place, name in enumerate(modules)
    ]
    _write_json(folder / "modules.json", listed)
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16, **(pooling or {"pooling_mode": "mean"})})
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": 32} if limits is None else limits)
    _write_json(folder / "config_sentence_transformers.json", said or {})
    return folder


def write_clip_model(folder: Path, *, seed: int = 0) -> Path:
    """A CLIP of one layer on each side, whose tokens are `WORDS` and whose pictures have 32 x 32 pixels."""
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    tokenizer = _build_tokenizer()
    text = {"vocab_size": len(WORDS) + len(_MARKS), "max_position_embeddings": 16, "eos_token_id": _MARKS.index("[SEP]")}
    text |= {"bos_token_id": _MARKS.index("[CLS]"), "pad_token_id": _MARKS.index("[PAD]")}
    vision = {"image_size": 32, "patch_size": 8}
    model = CLIPModel(CLIPConfig(text_config=_SHAPE | text, vision_config=_SHAPE | vision, projection_dim=16))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # strong enough that pictures differ
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def write_cross_encoder(folder: Path, num_labels: int = 1, seed: int = 0) -> Path:
    """A BERT of the same kind that classifies pairs of texts; its sequences are of 64 tokens at most."""
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    config = BertConfig(vocab_size=len(WORDS) + len(_MARKS), max_position_embeddings=64, **_SHAPE)
    config.num_labels = num_labels
    model = BertForSequenceClassification(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # strong enough that texts differ
    model.save_pretrained(folder)
    tokenizer = _build_tokenizer()
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(folder)
    return folder


def _build_tokenizer() -> PreTrainedTokenizerFast:
    numbers = {token: number for number, token in enumerate((*_MARKS, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    ends = [("[CLS]", numbers["[CLS]"]), ("[SEP]", numbers["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )  # pyright: ignore[reportAttributeAccessIssue]
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=48, **names)


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))

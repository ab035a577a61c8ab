"""Embedding, beside one text after the other through the same transformer, pooled by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from embedding_models import write_embedding_model
from transformers import AutoModel, AutoTokenizer

from drag_ray.engine.encoders.embedding import Embedder, pool
from drag_ray.engine.encoders.windows import plan_windows
from drag_ray.errors import ConfigError
from drag_ray.search.config import EmbeddingConfig

TEXTS = ["rotor speed limit", "fuel", "oil filter pump load wing spar", "wing spar", ""]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_embedding_model(tmp_path_factory.mktemp("models") / "tiny")


def build_embedder(model_dir: Path, **options: Any) -> Embedder:
    return Embedder(EmbeddingConfig(**{"model": str(model_dir), "window_tokens": 8, "overlap_tokens": 2, **options}))


def embed_alone(model_dir: Path, text: str, combine: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
    """One text without padding."""
    with torch.inference_mode():
        inputs = AutoTokenizer.from_pretrained(model_dir)(text, return_tensors="pt")
        vector = combine(AutoModel.from_pretrained(model_dir)(**inputs).last_hidden_state[0]).numpy()
    return vector / np.linalg.norm(vector)


def test_padded_batches_give_what_each_text_gives_alone(model_dir: Path) -> None:
    vectors = build_embedder(model_dir, batch_size=2).embed_queries(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((5, 16), np.float32)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert vector == pytest.approx(embed_alone(model_dir, text, lambda hidden: hidden.mean(0)), abs=1e-5)


@pytest.mark.parametrize(("pooling", "place"), [("cls", 0), ("lasttoken", -1)])
def test_one_token_stands_for_the_text_where_the_folder_says_so(tmp_path: Path, pooling: str, place: int) -> None:
    folder = write_embedding_model(tmp_path / "model", pooling={"pooling_mode": pooling}, modules=("Transformer", "Pooling"))
    for text, vector in zip(TEXTS, build_embedder(folder).embed_queries(TEXTS), strict=True):
        assert vector == pytest.approx(embed_alone(folder, text, lambda hidden: hidden[place]), abs=1e-5)


@pytest.mark.parametrize(("pooling", "expected"), [("cls", [1.0, 3.0]), ("lasttoken", [2.0, 3.0]), ("mean", [1.5, 3.0])])
def test_padding_counts_for_nothing_on_either_side(pooling: str, expected: list[float]) -> None:
    hidden = torch.tensor([[[1.0], [2.0], [9.0]], [[9.0], [9.0], [3.0]]])
    mask = torch.tensor([[1, 1, 0], [0, 0, 1]])
    assert pool(hidden, mask, pooling).squeeze(1).tolist() == expected


def test_prompts_stand_before_what_is_embedded_and_options_go_before_the_folder(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model", said={"prompts": {"query": "query: ", "document": "page: "}})
    embedder = build_embedder(folder)
    own = build_embedder(folder, query_prompt="fuel ")
    for text, [vector] in (
        ("query: rotor", embedder.embed_queries(["rotor"])),
        ("page: rotor", embedder.embed_pages(["rotor"])),
        ("fuel rotor", own.embed_queries(["rotor"])),
    ):
        assert vector == pytest.approx(embed_alone(folder, text, lambda hidden: hidden.mean(0)), abs=1e-5)


def test_a_folder_that_wants_lower_case_gets_it(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model", limits={"max_seq_length": 32, "do_lower_case": True})
    upper, lower = build_embedder(folder).embed_queries(["ROTOR Speed", "rotor speed"])
    assert upper.tolist() == lower.tolist()


def test_dot_products_keep_their_lengths(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model", modules=("Transformer", "Pooling"), said={"similarity_fn_name": "dot"})
    lengths = np.linalg.norm(build_embedder(folder).embed_queries(TEXTS), axis=1)
    assert (np.abs(lengths - 1) > 0.1).all()


def test_windows_are_the_text_with_overlaps_and_their_tokens_fit(model_dir: Path) -> None:
    windows = build_embedder(model_dir).windows
    text = "rotor  speed limit\nfuel pump wing spar load oil filter"
    assert windows.cut(text) == [
        "rotor  speed limit\nfuel pump wing",
        "pump wing spar load oil filter",
    ]
    assert [windows.cut(text) for text in ("", " \n", "fuel")] == [[], [], ["fuel"]]
    assert windows.encode_pages(windows.cut(text))["input_ids"].shape == (2, 8)


def test_a_prompt_takes_its_tokens_from_every_window(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model", said={"prompts": {"document": "page: "}})
    windows = build_embedder(folder).windows
    cut = windows.cut("rotor speed limit fuel pump wing")
    assert cut == ["rotor speed limit fuel pump", "fuel pump wing"]
    assert windows.encode_pages(cut)["input_ids"].shape == (2, 8)


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [
        (0, []),
        (1, [(0, 1)]),
        (6, [(0, 6)]),
        (7, [(0, 6), (4, 7)]),
        (10, [(0, 6), (4, 10)]),
        (11, [(0, 6), (4, 10), (8, 11)]),
    ],
)
def test_windows_cover_every_token_and_none_is_within_another(num_tokens: int, expected: list[tuple[int, int]]) -> None:
    assert [(window.start, window.stop) for window in plan_windows(num_tokens, size=6, overlap=2)] == expected


def test_a_long_query_is_read_as_far_as_the_model_reads(model_dir: Path) -> None:
    """30 words and two marks of its own are the 32 tokens of this model."""
    embedder = build_embedder(model_dir)
    long, cut = embedder.embed_queries([" ".join(["rotor"] * 31 + ["fuel"] * 9), " ".join(["rotor"] * 30)])
    assert long.tolist() == cut.tolist()


def test_windows_longer_than_the_model_reads_are_refused(tmp_path: Path, model_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"window_tokens 40: .* reads 32 tokens at most\. Set --embedding\.window-tokens 32"):
        build_embedder(model_dir, window_tokens=40)
    folder = write_embedding_model(tmp_path / "model", limits={})  # then the tokenizer says it
    with pytest.raises(ConfigError, match=r"window_tokens 49: .* reads 48 tokens at most"):
        build_embedder(folder, window_tokens=49)


def test_windows_that_hold_nothing_of_a_page_are_refused(model_dir: Path) -> None:
    with pytest.raises(ConfigError, match="take 4 of them and overlap_tokens 4 more"):
        build_embedder(model_dir, overlap_tokens=4, page_prompt="page: page:")


def test_numbers_that_are_infinite_are_refused(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model")
    model = AutoModel.from_pretrained(folder)
    model.encoder.layer[0].output.LayerNorm.weight.data.fill_(float("inf"))
    model.save_pretrained(folder)
    with pytest.raises(ConfigError, match="makes infinite numbers in float32"):
        build_embedder(folder).embed_queries(["rotor"])


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="cannot be read as an embedding model"):
        build_embedder(folder)

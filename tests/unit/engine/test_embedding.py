"""Embedding of texts and images, beside one after the other through the same model of transformers, pooled by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from embedding_models import write_clip_model, write_embedding_model
from PIL import Image
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer, CLIPModel

from drag_ray.engine.encoders.embedding import Embedder, ImageEmbedder
from drag_ray.engine.models.tokens import plan_windows
from drag_ray.errors import ConfigError
from drag_ray.search.config import EmbeddingConfig, ImageEmbeddingConfig

TEXTS = ["rotor speed limit", "fuel", "oil filter pump load wing spar", "wing spar", ""]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_embedding_model(tmp_path_factory.mktemp("models") / "tiny")


def build_embedder(model_dir: Path, **options: Any) -> Embedder:
    return Embedder(EmbeddingConfig(**{"model": str(model_dir), "window_tokens": 8, "overlap_tokens": 2, **options}))


def embed_alone(model_dir: Path, text: str) -> np.ndarray:
    """One text without padding, at length 1."""
    with torch.inference_mode():
        inputs = AutoTokenizer.from_pretrained(model_dir)(text, return_tensors="pt")
        vector = AutoModel.from_pretrained(model_dir)(**inputs).last_hidden_state[0].mean(0).numpy()
    return vector / np.linalg.norm(vector)


@pytest.mark.seconds
def test_padded_batches_give_what_each_text_gives_alone(model_dir: Path) -> None:
    vectors = build_embedder(model_dir, batch_size=2).embed_queries(TEXTS)
    assert (vectors.shape, vectors.dtype) == ((5, 16), np.float32)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert vector == pytest.approx(embed_alone(model_dir, text), abs=1e-5)


def test_prompts_stand_before_what_is_embedded_and_options_go_before_the_folder(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model", said={"prompts": {"query": "query: ", "document": "page: "}})
    embedder = build_embedder(folder)
    own = build_embedder(folder, query_prompt="fuel ")
    for text, [vector] in (
        ("query: rotor", embedder.embed_queries(["rotor"])),
        ("page: rotor", embedder.embed_pages(["rotor"])),
        ("fuel rotor", own.embed_queries(["rotor"])),
    ):
        assert vector == pytest.approx(embed_alone(folder, text), abs=1e-5)


@pytest.mark.parametrize(
    "said",
    [
        {"prompts": {"passage": "page: "}},
        {"prompts": {"document": "", "corpus": "page: "}},
        {"prompts": {"both": "page: ", "other": "fuel "}, "default_prompt_name": "both"},
    ],
)
def test_pages_have_the_first_prompt_for_pages_that_says_something(tmp_path: Path, said: dict[str, Any]) -> None:
    folder = write_embedding_model(tmp_path / "model", said=said)
    [vector] = build_embedder(folder).embed_pages(["rotor"])
    assert vector == pytest.approx(embed_alone(folder, "page: rotor"), abs=1e-5)


def test_dot_products_keep_their_lengths(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model", modules=("Transformer", "Pooling"), said={"similarity_fn_name": "dot"})
    lengths = np.linalg.norm(build_embedder(folder).embed_queries(TEXTS), axis=1)
    assert (np.abs(lengths - 1) > 0.1).all()


def count_tokens(embedder: Embedder, texts: list[str]) -> list[int]:
    return [len(embedder._model.tokenizer(text)["input_ids"]) for text in texts]


def test_windows_are_the_text_with_overlaps_and_fit_with_their_prompt(model_dir: Path, tmp_path: Path) -> None:
    embedder = build_embedder(model_dir)
    text = "rotor  speed limit\nfuel pump wing spar load oil filter"
    assert embedder.cut(text) == [
        "rotor  speed limit\nfuel pump wing",
        "pump wing spar load oil filter",
    ]
    assert [embedder.cut(text) for text in ("", " \n", "fuel")] == [[], [], ["fuel"]]
    assert count_tokens(embedder, embedder.cut(text)) == [8, 8]
    folder = write_embedding_model(tmp_path / "model", said={"prompts": {"document": "page: "}})
    embedder = build_embedder(folder)
    cut = embedder.cut("rotor speed limit fuel pump wing")
    assert cut == ["rotor speed limit fuel pump", "fuel pump wing"]
    assert count_tokens(embedder, [f"page: {window}" for window in cut]) == [8, 6]


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


def test_windows_are_refused_that_the_model_does_not_read_or_that_hold_nothing_of_a_page(tmp_path: Path, model_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"window_tokens 40: .* reads 32 tokens at most\. Set --embedding\.window-tokens 32"):
        build_embedder(model_dir, window_tokens=40)
    folder = write_embedding_model(tmp_path / "model", limits={})  # then the tokenizer says it
    with pytest.raises(ConfigError, match=r"window_tokens 49: .* reads 48 tokens at most"):
        build_embedder(folder, window_tokens=49)
    with pytest.raises(ConfigError, match="take 4 of them and overlap_tokens 4 more"):
        build_embedder(model_dir, overlap_tokens=4, page_prompt="page: page:")


def test_numbers_that_are_infinite_are_refused(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model")
    model = AutoModel.from_pretrained(folder)
    model.encoder.layer[0].output.LayerNorm.weight.data.fill_(float("inf"))
    model.save_pretrained(folder)
    with pytest.raises(ConfigError, match=r"makes infinite numbers in float32\. Try .*, or another model\."):
        build_embedder(folder).embed_queries(["rotor"])


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    for device in ("cpu", "meta"):
        with pytest.raises(ConfigError, match=r"embedding\.model '.*model': cannot be read by sentence-transformers"):
            Embedder(EmbeddingConfig(model=str(folder)), device)


def test_a_model_is_looked_at_without_its_weights(model_dir: Path) -> None:
    looked_at = Embedder(EmbeddingConfig(model=str(model_dir), window_tokens=8, overlap_tokens=2), "meta")
    assert {parameter.device.type for parameter in looked_at._model.parameters()} == {"meta"}
    assert looked_at.dimensions == 16


def test_weights_as_pickles_are_refused_in_every_module(tmp_path: Path) -> None:
    for name, module in (("first", ""), ("second", "Dense")):
        folder = write_embedding_model(tmp_path / name, modules=("Transformer", "Pooling", "Dense"))
        (folder / "Dense").mkdir()
        Dense(16, 4).save(str(folder / "Dense"))
        weights = folder / module / "model.safetensors"
        weights.rename(weights.with_name("pytorch_model.bin"))
        with pytest.raises(ConfigError, match=r"pytorch_model\.bin: weights as a pickle, which are not read"):
            build_embedder(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "modules.json",
            [{"idx": 0, "name": "0", "path": "", "type": "own_code.Module"}],
            "references the module class 'own_code",
        ),
        (
            "modules.json",
            [{"idx": 0, "name": "0", "path": "../elsewhere", "type": "sentence_transformers.models.Dense"}],
            "elsewhere",
        ),
        ("modules.json", {}, "cannot be read by sentence-transformers"),
        ("modules.json", "{", "cannot be read by sentence-transformers"),
        ("modules.json", "[" * 100_000, "cannot be read by sentence-transformers"),
        ("1_Pooling/config.json", {"word_embedding_dimension": 16, "pooling_mode": "none"}, "cannot be read by sentence-transf"),
        ("config_sentence_transformers.json", {"prompts": ["q: "]}, "cannot be read by sentence-transformers"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "euclidean"}, "compared by euclidean; expected cosine"),
    ],
)
def test_a_folder_that_is_not_understood_is_refused(tmp_path: Path, name: str, value: Any, message: str) -> None:
    folder = write_embedding_model(tmp_path / "model")
    (folder / "own_code.py").write_text("raise SystemExit('run')")
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(ConfigError, match=message):
        build_embedder(folder)


def test_a_model_of_another_library_is_refused(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "model")
    (folder / "modules.json").unlink()
    with pytest.raises(ConfigError, match=r"no modules\.json\. embedding\.model must be a model of sentence-transformers"):
        build_embedder(folder)


CAPTIONS = ["rotor speed limit", "fuel"]


@pytest.fixture(scope="module")
def clip_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def embedder(clip_dir: Path) -> ImageEmbedder:
    return ImageEmbedder(ImageEmbeddingConfig(model=str(clip_dir)))


def draw_noise(seed: int, width: int = 48, height: int = 36) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_vectors_are_those_of_the_model_whatever_they_are_embedded_with(clip_dir: Path, embedder: ImageEmbedder) -> None:
    images = [draw_noise(0), draw_noise(1)]
    model = CLIPModel.from_pretrained(clip_dir)
    for text, image in zip(CAPTIONS, images, strict=True):
        inputs = AutoTokenizer.from_pretrained(clip_dir)(text, return_tensors="pt")
        inputs |= AutoImageProcessor.from_pretrained(clip_dir)(images=image, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            expected = model(**inputs)
        place = CAPTIONS.index(text)
        assert embedder.embed_texts(CAPTIONS)[place] == pytest.approx(expected.text_embeds[0].numpy(), abs=1e-5)
        assert embedder.embed_images(images)[place] == pytest.approx(expected.image_embeds[0].numpy(), abs=1e-5)


def test_vectors_have_length_1_whatever_the_picture_and_however_long_the_text(embedder: ImageEmbedder) -> None:
    grey, clear = draw_noise(2).convert("L"), draw_noise(3).convert("RGBA")
    vectors = [*embedder.embed_images([grey, clear, draw_noise(4, 400, 3)]), *embedder.embed_texts(["rotor " * 500, "", "x\0y"])]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(6), abs=1e-5)


def test_a_model_of_another_kind_or_that_is_not_there_is_refused_with_its_option(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "bert")
    (folder / "modules.json").unlink()
    with pytest.raises(
        ConfigError, match=r"image_embedding\.model '.*bert': a bert model, which does not embed texts and images"
    ):
        ImageEmbedder(ImageEmbeddingConfig(model=str(folder)), "meta")
    with pytest.raises(ConfigError, match=r"image_embedding\.model '.*nowhere': no such folder"):
        ImageEmbedder(ImageEmbeddingConfig(model=str(tmp_path / "nowhere")))


def test_infinite_numbers_are_refused(clip_dir: Path) -> None:
    embedder = ImageEmbedder(ImageEmbeddingConfig(model=str(clip_dir)))
    with torch.no_grad():
        embedder._model.transformers_model.visual_projection.weight.fill_(float("inf"))
    with pytest.raises(ConfigError, match="makes infinite numbers in float32"):
        embedder.embed_images([draw_noise(0)])

"""Models that embed texts and images: their vectors beside those of transformers' own forward pass, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from embedding_models import write_clip_model, write_embedding_model
from PIL import Image
from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

from drag_ray.engine.encoders.image_embedding import ImageEmbedder, read_image_model
from drag_ray.errors import ConfigError
from drag_ray.search.config import ImageEmbeddingConfig

TEXTS = ["rotor speed limit", "fuel"]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def embedder(model_dir: Path) -> ImageEmbedder:
    return ImageEmbedder(ImageEmbeddingConfig(model=str(model_dir)))


def draw_noise(seed: int, width: int = 48, height: int = 36) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_vectors_are_those_of_the_model_whatever_they_are_embedded_with(model_dir: Path, embedder: ImageEmbedder) -> None:
    images = [draw_noise(0), draw_noise(1)]
    model = CLIPModel.from_pretrained(model_dir)
    for text, image in zip(TEXTS, images, strict=True):
        inputs = AutoTokenizer.from_pretrained(model_dir)(text, return_tensors="pt")
        inputs |= AutoImageProcessor.from_pretrained(model_dir)(images=image, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            expected = model(**inputs)
        place = TEXTS.index(text)
        assert embedder.embed_texts(TEXTS)[place] == pytest.approx(expected.text_embeds[0].numpy(), abs=1e-5)
        assert embedder.embed_images(images)[place] == pytest.approx(expected.image_embeds[0].numpy(), abs=1e-5)


def test_vectors_have_length_1_whatever_the_picture_and_however_long_the_text(embedder: ImageEmbedder) -> None:
    grey, clear = draw_noise(2).convert("L"), draw_noise(3).convert("RGBA")
    vectors = [*embedder.embed_images([grey, clear, draw_noise(4, 400, 3)]), *embedder.embed_texts(["rotor " * 500, "", "x\0y"])]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(6), abs=1e-5)


def test_a_folder_of_sentence_transformers_is_read_where_it_holds_such_a_model_alone(tmp_path: Path) -> None:
    write_clip_model(tmp_path / "0_CLIPModel")
    module = {"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    assert read_image_model(str(tmp_path)).folder == tmp_path / "0_CLIPModel"
    (tmp_path / "modules.json").write_text(json.dumps([module, {**module, "type": "sentence_transformers.models.Dense"}]))
    with pytest.raises(ConfigError, match="made of CLIPModel, Dense; expected CLIPModel alone"):
        read_image_model(str(tmp_path))


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = write_embedding_model(tmp_path / "bert")
    (folder / "modules.json").unlink()
    with pytest.raises(
        ConfigError, match=r"image_embedding\.model '.*bert': a bert model, which does not embed texts and images"
    ):
        read_image_model(str(folder))


def test_a_model_that_is_not_there_is_told_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"image_embedding\.model '.*nowhere': no such folder"):
        read_image_model(str(tmp_path / "nowhere"))


def test_infinite_numbers_are_refused(model_dir: Path) -> None:
    embedder = ImageEmbedder(ImageEmbeddingConfig(model=str(model_dir)))
    with torch.no_grad():
        embedder._model.visual_projection.weight.fill_(float("inf"))
    with pytest.raises(ConfigError, match="makes infinite numbers in float32"):
        embedder.embed_images([draw_noise(0)])

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.page_images import compute_scale
from drag_ray.errors import DataError

EDGES = st.floats(0.01, 20_000)


@given(EDGES, EDGES, st.floats(0.1, 9), st.integers(10_000, 10_000_000))
def test_the_budget_holds_at_once_and_is_used(width, height, wanted, max_pixels):
    scale = compute_scale(width, height, wanted, max_pixels)
    assert 0 < scale <= wanted
    assert math.ceil(width * scale) * math.ceil(height * scale) <= max_pixels
    assert max(width, height) * scale <= 16_000
    is_full = (width * scale + 1) * (height * scale + 1) >= max_pixels - 1e-3
    assert scale == wanted or is_full or max(width, height) * scale > 15_998


def test_an_image_is_found_by_its_key_and_equal_ones_are_one_file(tmp_path):
    images = ImageStore(tmp_path)
    key = images.write(Image.new("RGB", (30, 20), (200, 10, 10)))
    assert images.write(Image.new("RGB", (30, 20), (200, 10, 10))) == key
    assert images.write(Image.new("RGB", (30, 20), (10, 10, 200))) != key
    assert len(list(tmp_path.rglob("*.jpg"))) == 2
    found = images.open(key)
    assert found.size == (30, 20)
    red, _, blue = np.asarray(found)[10, 15]
    assert red > 180
    assert blue < 30
    assert images.read(key).startswith(b"\xff\xd8")


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "ab/abc.jpg", "/ab/" + "a" * 32 + ".jpg"])
def test_what_is_no_key_is_no_path(tmp_path, key):
    with pytest.raises(DataError, match=r"not a key.*--corpus\.page-images"):
        ImageStore(tmp_path).read(key)


def test_a_lost_image_is_named(tmp_path):
    with pytest.raises(DataError, match="no such image"):
        ImageStore(tmp_path).open("ab/" + "a" * 32 + ".jpg")


def test_a_store_takes_over_the_images_of_another_and_nothing_else(tmp_path):
    source, target = ImageStore(tmp_path / "a"), ImageStore(tmp_path / "b")
    key = source.write(Image.new("RGB", (30, 20), "red"))
    (tmp_path / "a" / "ab").mkdir(exist_ok=True)
    (tmp_path / "a" / "ab" / "notes.jpg").write_text("no image of the store")
    for _ in range(2):
        target.take_over(source.root)
    target.take_over(tmp_path / "nowhere")
    assert target.open(key).size == (30, 20)
    assert len(list(target.root.rglob("*.jpg"))) == 1

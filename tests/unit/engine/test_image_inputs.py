"""Prompts with images, without an engine."""

from dataclasses import dataclass

import pytest

from drag_ray.engine.image_inputs import ProcessedImage, fill_places
from drag_ray.errors import ConfigError

MARK = 7


@dataclass(frozen=True)
class Place:
    offset: int
    length: int


def build_image(*token_ids: int, offset: int = 0, length: int = 0) -> ProcessedImage:
    return ProcessedImage(None, list(token_ids), Place(offset, length or len(token_ids)))


def test_each_mark_is_replaced_by_the_tokens_of_its_image() -> None:
    images = [build_image(MARK, MARK), build_image(1, MARK, MARK, MARK, 2, offset=1, length=3)]
    token_ids, places = fill_places([10, MARK, 11, 12, MARK], MARK, images)
    assert token_ids == [10, MARK, MARK, 11, 12, 1, MARK, MARK, MARK, 2]
    assert places == [Place(1, 2), Place(6, 3)]


def test_a_template_that_marks_images_in_its_own_way_is_refused() -> None:
    with pytest.raises(ConfigError, match="marks 1 of 2 images"):
        fill_places([10, MARK], MARK, [build_image(MARK), build_image(MARK)])

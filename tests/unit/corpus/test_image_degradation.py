"""Pictures made worse on purpose."""

import numpy as np
import pytest
from PIL import Image

from drag_ray.corpus.image_degradation import DEGRADATIONS, choose_degradations, degrade


def draw_picture() -> Image.Image:
    pixels = np.zeros((40, 60, 3), dtype=np.uint8)
    pixels[10:30, 20:40] = (250, 240, 230)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("kind", DEGRADATIONS)
def test_a_degraded_picture_is_another_one_and_the_same_for_the_same_seed(kind: str) -> None:
    picture = draw_picture()
    first, again = degrade(picture, kind, 1), degrade(picture, kind, 1)
    assert first.tobytes() == again.tobytes()
    assert any(degrade(picture, kind, seed).tobytes() != first.tobytes() for seed in range(2, 6))
    assert first.tobytes() != picture.tobytes()
    assert picture.tobytes() == draw_picture().tobytes()


def test_a_downscaled_picture_is_smaller_and_never_empty() -> None:
    assert degrade(draw_picture(), "downscale", 3).width < 60
    assert degrade(Image.new("L", (1, 1)), "downscale", 3).size == (1, 1)


def test_about_the_share_is_degraded_in_every_way_and_each_by_itself() -> None:
    ids = [f"q{number}" for number in range(2000)]
    chosen = choose_degradations(ids, seed=5)
    assert 150 < len(chosen) < 250
    assert set(chosen.values()) == set(DEGRADATIONS)
    assert choose_degradations(ids[:100], seed=5) == {name: kind for name, kind in chosen.items() if name in set(ids[:100])}
    assert choose_degradations(ids, seed=5, share=0.0) == {}
    assert len(choose_degradations(ids, seed=5, share=1.0)) == 2000

"""Pictures made worse on purpose."""

import numpy as np
import pytest
from PIL import Image

from drag_ray.corpus.image_degradation import DEGRADATIONS, DegradationConfig, degrade


def draw_picture() -> Image.Image:
    pixels = np.zeros((80, 120, 3), dtype=np.uint8)
    pixels[20:60, 40:80] = (250, 240, 230)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("kind", DEGRADATIONS)
def test_a_degraded_picture_is_another_one_and_the_same_for_the_same_seed(kind: str) -> None:
    picture = draw_picture()
    made = [degrade(picture, "a", DegradationConfig(share=1, kinds=(kind,), seed=seed)) for seed in (1, 1, *range(2, 7))]
    first, again, *others = [image.tobytes() for image in made if image]
    assert first == again != picture.tobytes()
    assert any(other != first for other in others)
    assert all(image and image.width * image.height <= picture.width * picture.height for image in made)
    assert picture.tobytes() == draw_picture().tobytes()


@pytest.mark.parametrize("kind", DEGRADATIONS)
@pytest.mark.parametrize("size", [(1, 1), (3, 900), (28, 28)])
def test_a_picture_of_any_mode_and_size_is_made_worse_and_never_empty(kind: str, size: tuple[int, int]) -> None:
    for mode in ("L", "RGB"):
        made = degrade(Image.new(mode, size), "a", DegradationConfig(share=1, kinds=(kind,)))
        assert made
        assert made.mode == "RGB"
        assert min(made.size) >= min(28, *size) - 1  # to no more pixels in all, which a turn needs


def test_about_the_share_is_degraded_in_every_way_and_each_by_itself() -> None:
    keys = [f"k{number}" for number in range(1000)]
    picture = Image.new("RGB", (30, 30), "red")

    def choose(share: float, seed: int = 5) -> set[str]:
        config = DegradationConfig(share=share, kinds=("jpeg",), seed=seed)
        return {key for key in keys if degrade(picture, key, config)}

    assert 60 < len(choose(0.1)) < 140
    assert choose(0.1) < choose(0.3)  # more of them, and the same ones
    assert choose(0.1, seed=6) != choose(0.1)
    assert (choose(0.0), choose(1.0)) == (set(), set(keys))


def test_what_is_done_is_said() -> None:
    assert DegradationConfig(share=0.125, kinds=("blur", "jpeg"), seed=3).describe() == "12.5 % made worse (blur, jpeg; seed 3)"
    assert DegradationConfig().describe() == ""

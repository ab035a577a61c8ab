"""Pictures as pages: how they are read, stored, scaled and made worse on purpose."""

import io
import math
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_degradation import DEGRADATIONS, DegradationConfig, degrade
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.picture import compute_scale
from drag_ray.corpus.readers.documents import Span, count_image_pages, read_document, read_image
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.errors import DataError
from drag_ray.types import Page


@pytest.fixture
def images(tmp_path):
    return ImageStore(tmp_path / "page_images")


def build_reader(images, **options):
    return PageReader(CorpusConfig(**{"ocr": "off", "page_images": True} | options), images)


def read_picture(path, images, **options):
    (page,), problems = read_image(path, path.name, build_reader(images, **options))
    assert problems == []
    return images.open(page.image)


def write_tiff(path, *greys, **options):
    frames = [Image.new("L", (60, 40), grey) for grey in greys]
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    return path


def test_the_frames_of_a_tiff_are_pages_and_a_range_of_them_is_read(tmp_path, images):
    path = write_tiff(tmp_path / "scan.tif", 0, 100, 250)
    assert count_image_pages(path) == 3
    pages, problems = read_image(path, "sub/scan.tif", build_reader(images))
    assert problems == []
    assert [(page.file, page.page_number, page.total_pages, page.text, page.text_source) for page in pages] == [
        ("sub/scan.tif", number, 3, "", "none") for number in (1, 2, 3)
    ]
    assert [images.open(page.image).getpixel((5, 5))[0] for page in pages] == pytest.approx([0, 100, 250], abs=2)
    pages, _ = read_image(path, "scan.tiff", build_reader(images, page_images=False), 2, 9)
    assert pages == [Page("scan.tiff", 2, 3, "", "none"), Page("scan.tiff", 3, 3, "", "none")]
    reader = build_reader(images, document_pages=2)
    pages, (problem,) = read_document(Span(path), tmp_path, reader)
    assert (pages, problem.kind) == ([], "broken_file")
    assert "says that it has 3 pages, at most 2 are read" in problem.reason


def declare_png(edge):
    """A PNG whose header says so many pixels each way, and that holds few."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", edge, edge, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(999))) + chunk(b"IEND", b"")


def encode_gif():
    stream = io.BytesIO()
    Image.new("RGB", (9, 9)).save(stream, "GIF")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<html>404</html>", "cannot identify image file"),
        (encode_gif(), "cannot identify image file"),  # of another format, whatever its name
        (declare_png(60_000), "3600000000 pixels"),
        (None, "No such file"),
    ],
)
def test_what_is_no_image_of_a_bearable_size_is_set_aside(tmp_path, images, data, reason):
    path = tmp_path / "a.png"
    if data:
        path.write_bytes(data)
    pages, (problem,) = read_document(Span(path), tmp_path, build_reader(images))
    assert (pages, problem.place, problem.kind) == ([], str(path), "broken_file")
    assert reason in problem.reason


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_tiffs_are_set_aside_whole_or_by_page(tmp_path, images):
    data = write_tiff(tmp_path / "good.tif", 0, 100, compression="tiff_deflate").read_bytes()
    random = np.random.default_rng(0)
    broken = tmp_path / "broken.tif"
    kinds = set()
    for _ in range(60):
        noisy = bytearray(data[: random.integers(8, len(data) + 1)])
        for place in random.integers(0, len(noisy), 6):
            noisy[place] = random.integers(256)
        broken.write_bytes(noisy)
        kinds |= {problem.kind for problem in read_document(Span(broken), tmp_path, build_reader(images))[1]}
    assert kinds == {"broken_file", "broken_page"}


def test_a_photograph_is_turned_upright(tmp_path, images):
    photo = Image.new("RGB", (60, 40), "white")
    photo.paste("black", (0, 0, 60, 10))
    exif = photo.getexif()
    exif[0x0112] = 6  # the camera was held on its side
    photo.save(tmp_path / "a.jpg", exif=exif)
    picture = read_picture(tmp_path / "a.jpg", images)
    assert picture.size == (40, 60)
    assert picture.getpixel((37, 30))[0] < 40 < 200 < picture.getpixel((3, 30))[0]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_white_paper(tmp_path, images, mode):
    image = Image.new("RGBA", (20, 20), (0, 0, 0, 0)).convert(mode)
    options: dict[str, Any] = {"transparency": image.getpixel((0, 0))} if mode == "P" else {}
    image.save(tmp_path / "a.png", **options)
    assert min(read_picture(tmp_path / "a.png", images).getpixel((10, 10))) > 250


def test_sixteen_bits_become_eight_without_clipping(tmp_path, images):
    Image.fromarray(np.full((20, 20), 0x8000, np.uint16)).save(tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png", images).getpixel((10, 10)) == pytest.approx((128, 128, 128), abs=2)


@pytest.mark.parametrize(
    ("options", "dpi", "size"),
    [
        ({}, None, (400, 300)),
        ({"page_image_dpi": 100}, 200, (200, 150)),
        ({"page_image_dpi": 300}, 200, (400, 300)),
        ({"page_image_max_pixels": 30_000}, None, (199, 149)),
    ],
)
def test_page_images_shrink_to_resolution_and_budget_and_never_grow(tmp_path, images, options, dpi, size):
    resolution: dict[str, Any] = {"dpi": (dpi, dpi)} if dpi else {}
    Image.new("RGB", (400, 300), "white").save(tmp_path / "a.png", **resolution)
    found = read_picture(tmp_path / "a.png", images, **options).size
    assert found == pytest.approx(size, abs=1)
    assert found[0] * found[1] <= options.get("page_image_max_pixels", 10**6)


EDGES = st.floats(0.01, 20_000)


@given(EDGES, EDGES, st.floats(0.1, 9), st.integers(10_000, 10_000_000))
def test_the_budget_holds_at_once_and_is_used(width, height, wanted, max_pixels):
    scale = compute_scale(width, height, wanted, max_pixels)
    assert 0 < scale <= wanted
    assert math.ceil(width * scale) * math.ceil(height * scale) <= max_pixels
    assert max(width, height) * scale <= 16_000
    is_full = (width * scale + 1) * (height * scale + 1) >= max_pixels - 1e-3
    assert scale == wanted or is_full or max(width, height) * scale > 15_998


def test_what_is_found_by_its_key_is_read_and_a_lost_image_is_named(tmp_path):
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
    with pytest.raises(DataError, match="no such image"):
        ImageStore(tmp_path).open("ab/" + "a" * 32 + ".jpg")


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "ab/abc.jpg", "/ab/" + "a" * 32 + ".jpg"])
def test_what_is_no_key_is_no_path(tmp_path, key):
    with pytest.raises(DataError, match=r"not a key.*--corpus\.page-images"):
        ImageStore(tmp_path).read(key)


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


def draw_picture() -> Image.Image:
    pixels = np.zeros((80, 120, 3), dtype=np.uint8)
    pixels[20:60, 40:80] = (250, 240, 230)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("kind", DEGRADATIONS)
def test_a_degraded_picture_is_another_one_and_the_same_for_the_same_key(kind: str) -> None:
    picture = draw_picture()
    made = [degrade(picture, key, DegradationConfig(share=1, kinds=(kind,))) for key in "aabcdef"]
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

    def choose(share: float) -> set[str]:
        config = DegradationConfig(share=share, kinds=("jpeg",))
        return {key for key in keys if degrade(picture, key, config)}

    assert 60 < len(choose(0.1)) < 140
    assert choose(0.1) < choose(0.3)  # more of them, and the same ones
    assert (choose(0.0), choose(1.0)) == (set(), set(keys))


def test_what_is_done_is_said() -> None:
    assert DegradationConfig(share=0.125, kinds=("blur", "jpeg")).describe() == "12.5 % made worse (blur, jpeg)"
    assert DegradationConfig().describe() == ""

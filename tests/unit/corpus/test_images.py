import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.readers.documents import Span, read_document
from drag_ray.corpus.readers.images import count_image_pages, read_image
from drag_ray.corpus.readers.page_reader import PageReader
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


def test_the_frames_of_a_tiff_are_pages(tmp_path, images):
    path = write_tiff(tmp_path / "scan.tif", 0, 100, 250)
    assert count_image_pages(path) == 3
    pages, problems = read_image(path, "sub/scan.tif", build_reader(images))
    assert problems == []
    assert [(page.file, page.page_number, page.total_pages, page.text, page.text_source) for page in pages] == [
        ("sub/scan.tif", number, 3, "", "none") for number in (1, 2, 3)
    ]
    assert [images.open(page.image).getpixel((5, 5))[0] for page in pages] == pytest.approx([0, 100, 250], abs=2)


def test_a_range_of_frames_is_read(tmp_path, images):
    path = write_tiff(tmp_path / "scan.tiff", 0, 100, 250)
    pages, _ = read_image(path, "scan.tiff", build_reader(images, page_images=False), 2, 9)
    assert pages == [Page("scan.tiff", 2, 3, "", "none"), Page("scan.tiff", 3, 3, "", "none")]


def test_a_tiff_of_too_many_frames_is_set_aside(tmp_path, images):
    path = write_tiff(tmp_path / "scan.tif", 0, 100, 250)
    reader = build_reader(images, document_pages=2)
    pages, (problem,) = read_document(Span(path), tmp_path, reader)
    assert (pages, problem.kind) == ([], "broken_file")
    assert "says that it has 3 pages, at most 2 are read" in problem.reason


def read_broken(path, images):
    """Why the image as a whole is set aside."""
    pages, (problem,) = read_document(Span(path), path.parent, build_reader(images))
    assert (pages, problem.place, problem.kind) == ([], str(path), "broken_file")
    return problem.reason


def test_an_image_that_is_no_image_is_set_aside(tmp_path, images):
    path = tmp_path / "text.png"
    path.write_text("<html>404</html>")
    assert "cannot identify image file" in read_broken(path, images)
    assert "No such file" in read_broken(tmp_path / "nowhere.jpg", images)


def test_an_image_of_another_format_is_set_aside_whatever_its_name(tmp_path, images):
    Image.new("RGB", (9, 9)).save(tmp_path / "a.gif")
    (tmp_path / "a.gif").rename(tmp_path / "a.png")
    assert "cannot identify image file" in read_broken(tmp_path / "a.png", images)


def test_an_image_that_claims_an_absurd_size_is_set_aside(tmp_path, images):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    path = tmp_path / "bomb.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(999))) + chunk(b"IEND", b""))
    assert "3600000000 pixels" in read_broken(path, images)


def test_a_truncated_image_is_set_aside(tmp_path, images):
    path = tmp_path / "a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (80, 80, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:5000])
    pages, (problem,) = read_image(path, "a.png", build_reader(images))
    assert pages == []
    assert problem.place == f"{path}, page 1"
    assert "truncated" in problem.reason


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

"""An index of pages with pictures and their vectors, by a tiny model of random weights."""

from collections.abc import Sequence
from pathlib import Path

from embedding_models import write_clip_model
from factories import build_page
from PIL import Image
from small_index import open_index

from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.index.vector_parts import PictureEmbedder, merge_parts
from drag_ray.search.config import ImageEmbeddingConfig
from drag_ray.search.index import PAGES_NAME, read_fingerprint
from drag_ray.search.vectors import IMAGES_DIR_NAME

COLOURS = ("red", "lime", "blue", "white", "black", "yellow")


def draw(colour: str) -> Image.Image:
    image = Image.new("RGB", (60, 60), colour)
    image.paste("gray", (COLOURS.index(colour) * 5, 0, 40, 30))
    return image


def write_pictures(folder: Path, colours: Sequence[str] = COLOURS, file: str = "manual.pdf") -> Path:
    """An index of a page for each colour, and one without a picture, with the vectors of the pictures.

    Args:
        file: the name of each page's, in which `{}` stands for its number.
    """
    store = ImageStore(folder / DIR_NAME)
    keys = ["", *(store.write(draw(colour)) for colour in colours)]
    pages = [
        build_page(file=file.format(number), page_number=number, text=f"page {number}", image=key)
        for number, key in enumerate(keys, start=1)
    ]
    open_index(folder, pages)
    config = ImageEmbeddingConfig(model=str(write_clip_model(folder / "model")))
    embedder = PictureEmbedder(config, folder / "search_index" / PAGES_NAME, folder / DIR_NAME)
    embedder.write(folder / "part.npz", range(len(pages)))
    merge_parts([folder / "part.npz"], folder / IMAGES_DIR_NAME, read_fingerprint(folder / "search_index"), config)
    return folder

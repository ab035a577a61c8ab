"""Pictures of the pages of an index that was built from texts, for `questions.anchor_images`, which asks about them.

python benchmarks/picture_pages.py RUN

Each page's text is drawn as it would be printed, and kept as `corpus.page_images` keeps a picture. The words are indexed again,
with the default options, as the index knows its table of pages; then the folder is accepted.
"""

import shutil
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
from PIL import Image, ImageDraw

from drag_ray import schemas
from drag_ray.corpus import image_store
from drag_ray.corpus.image_store import ImageStore
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.stage_runs.damage import accept_changes
from drag_ray.storage import artifacts

SIZE, COLUMNS, LINES = (600, 800), 90, 60


def draw(text: str, folder: Path) -> str:
    """Keep the picture of a text, and return its key."""
    image = Image.new("L", SIZE, 255)
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, COLUMNS) or [""]][:LINES]
    printed = "\n".join(lines).encode("latin-1", "replace").decode("latin-1")
    ImageDraw.Draw(image).multiline_text((20, 20), printed, fill=0, spacing=2)
    return ImageStore(folder).write(image)


def main() -> None:
    index_dir = Path(sys.argv[1]) / "index"
    table = schemas.read_table(index_dir / "pages.parquet", schemas.PAGES)
    with ProcessPoolExecutor(8) as pool:
        keys = list(pool.map(partial(draw, folder=index_dir / image_store.DIR_NAME), table["text"].to_pylist(), chunksize=64))
    place = table.schema.get_field_index("image")
    artifacts.write_parquet(index_dir / "pages.parquet", table.set_column(place, table.schema.field(place), pa.array(keys)))
    shutil.rmtree(index_dir / "search_index")
    build_index(index_dir / "pages.parquet", index_dir / "search_index", SearchConfig())
    accept_changes(index_dir)
    print(f"{len(keys)} pictures in {index_dir / image_store.DIR_NAME}")


if __name__ == "__main__":
    main()

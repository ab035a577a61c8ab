from pathlib import Path

import pytest
from factories import build_page, write_trajectories
from PIL import Image
from transcript_cases import BY_FIRST, FAILED, FOUND, MISSED

from drag_ray import schemas
from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.storage import artifacts


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A collection of rollouts of every kind, and the index with the pictures of its pages."""
    run_dir = tmp_path / "run"
    write_trajectories(run_dir / "collect" / "trajectories" / "1.parquet", [FOUND, MISSED])
    write_trajectories(run_dir / "collect" / "trajectories" / "2.parquet", [BY_FIRST])
    write_trajectories(run_dir / "collect" / "failures" / "3.parquet", [FAILED])
    images = ImageStore(run_dir / "index" / DIR_NAME)
    keys = [images.write(Image.new("RGB", (600, 800), color)) for color in ("red", "blue")]
    pages = [build_page(image=keys[0]), build_page(file="other.pdf", page_number=1, image=keys[1]), build_page(page_number=9)]
    artifacts.write_parquet(run_dir / "index" / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    return run_dir

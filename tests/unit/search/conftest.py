"""Small collections as indexes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from drag_ray import schemas
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.storage import artifacts
from drag_ray.types import Page

WriteIndex = Callable[..., Path]


@pytest.fixture(scope="session")
def write_index() -> WriteIndex:
    """Indexes texts, one file each, or pages; returns the index folder. Keyword arguments are search options."""

    def write(folder: Path, texts: Sequence[str | Page], **options: Any) -> Path:
        pages = [
            text if isinstance(text, Page) else Page(f"file{number:02}.pdf", 1, 1, text) for number, text in enumerate(texts)
        ]
        artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages[::-1], schemas.PAGES))
        build_index(folder / "pages.parquet", folder / "index", SearchConfig(**options))
        return folder / "index"

    return write

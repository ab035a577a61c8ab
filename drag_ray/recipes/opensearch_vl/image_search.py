"""The pages whose pictures are like a description, or like another picture: by a model that embeds both."""

import logging
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from drag_ray.agent.retrieval import open_picture_index
from drag_ray.errors import ConfigError, SearchIndexError, ToolError
from drag_ray.search.vectors import IMAGES_DIR_NAME, has_vectors
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

_logger = logging.getLogger(__name__)

MAX_PAGES = 5
_MAX_CHARS = 1000


class ImageSearchArguments(Arguments):
    """The query: words or an image."""

    query: str = Field(default="", max_length=_MAX_CHARS)
    """What the picture of the page shows, in words. Leave it out to search with an image."""
    image: str = ""
    """Name of an image that the page looks like or contains, such as image_1, in place of words."""
    pages: int = Field(default=2, ge=1, le=MAX_PAGES)
    """How many pages are shown."""

    @model_validator(mode="after")
    def _asks_for_one_thing(self) -> "ImageSearchArguments":
        if bool(self.query.strip()) == bool(self.image):
            raise ValueError("give either a query or the name of an image")
        return self


def search_images(arguments: ImageSearchArguments, workspace: Workspace) -> Observation:
    """The pages with the nearest pictures, and these. Raises ToolError where there is no such image, or the index cannot be
    searched so."""
    image: Any = workspace.images.open(arguments.image) if arguments.image else None
    try:
        index = open_picture_index(workspace.pages.index_dir.parent)
        [vector] = index.embedder.embed_images([image]) if image else index.embedder.embed_texts([arguments.query])
        found = index.rank(vector, arguments.pages, workspace.pages.shown_rows)
    except (SearchIndexError, ConfigError) as error:
        _logger.warning("%s", error)
        raise ToolError("the pictures of this collection cannot be searched") from error
    pages = [workspace.find_page(place.file, place.page_number) for place in found]
    return Observation(
        "Pages with such pictures, the likest first:" if pages else "No page has a picture.",
        tuple(ObservedImage(page.image, f"{page.file}#{page.page_number}") for page in pages),
    )


def _check_vectors(index_dir: Path) -> None:
    if not has_vectors(index_dir / IMAGES_DIR_NAME):
        raise ConfigError(
            f"agent.tools image_search: {index_dir} has no vectors of the pictures of its pages. Build it with a model that "
            "embeds texts and images: python jobs/index.py --corpus.page-images --image-embedding.model FOLDER"
        )


TOOL = Tool(
    name="image_search",
    description="Find pages by what their pictures show, described in words or by an image, and see them.",
    arguments=ImageSearchArguments,
    run=search_images,
    check_index=_check_vectors,
    shows_images=True,
)

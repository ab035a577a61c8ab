"""How often a large document has gone beyond a limit: after a few times it is read no further.

Its parts are read side by side, by processes that know nothing of each other, so what happened to one is an empty file beside
what was read. A document with one page that nobody can read loses the part of that page; one that is made to take as long as it
may costs a few parts, not hundreds.
"""

from pathlib import Path

from drag_ray.artifacts import compute_fingerprint
from drag_ray.corpus.documents import Span
from drag_ray.file_access import create_mark, list_folder, writing

MAX_OVERRUNS = 3
"""parts of a document that went beyond a limit; the parts that nobody has begun then are not read"""


class Overruns:
    """The parts of documents that went beyond a limit.

    Args:
        folder: on storage that all who read share; it need not be there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_exhausted(self, span: Span) -> bool:
        """Whether so many parts of the document went beyond a limit that this one is not read.

        Raises:
            ArtifactError: the folder cannot be listed.
        """
        return span.last_page is not None and len(list_folder(self._locate(span))) >= MAX_OVERRUNS

    def add(self, span: Span) -> None:
        """Note that a part of a document went beyond a limit; a document that is read at once is not read again anyway.

        Raises:
            ArtifactError: nothing can be written.
        """
        if span.last_page is not None:
            folder = self._locate(span)
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
            create_mark(folder / f"{span.first_page}-{span.last_page}")

    def _locate(self, span: Span) -> Path:
        return self._folder / compute_fingerprint(str(span.path))

"""Cost accounting of reading a large document: one that costs too much is read no further.

Its parts are read side by side, by processes that know nothing of each other, so what each has cost is an empty file beside
what was read, with the seconds in its name. A document with one page that nobody can read loses the part of that page; one that
is made to take as long as it may, in each of hundreds of parts, is given up.
"""

import math
from pathlib import Path

from drag_ray.corpus.readers.documents import Span
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.storage.file_access import create_mark, list_folder, writing

MAX_OVERRUNS = 3
"""parts of a document that went beyond a limit; the parts that nobody has begun then are not read"""
_OVERRUN = ".overrun"


class ReadingCosts:
    """The costs of the parts of large documents.

    Args:
        folder: on storage that all who read share; it need not be there.
        max_cpu_s: CPU seconds that the parts of a document may take together.
    """

    def __init__(self, folder: Path, max_cpu_s: float) -> None:
        self._folder = folder
        self._max_cpu_s = max_cpu_s

    def find_reason(self, span: Span) -> str | None:
        """The reason not to read a part; None if it is read.

        Raises:
            ArtifactError: the folder cannot be listed.
        """
        if span.last_page is None:
            return None
        parts = list_folder(self._locate(span))
        if sum(part.suffix == _OVERRUN for part in parts) >= MAX_OVERRUNS:
            return f"not read: {MAX_OVERRUNS} parts of this document went beyond a limit. Print it to a new PDF or remove it."
        if sum(int(part.stem.rpartition("-")[2]) for part in parts) >= self._max_cpu_s:
            limit = f"{self._max_cpu_s:g} CPU seconds (corpus.document_total_cpu_s)"
            return f"not read: other parts of this document took {limit}. Raise the limit, split the document or remove it."
        return None

    def add(self, span: Span, cpu_s: float, overrun: bool = False) -> None:
        """Note what a part of a document has cost, in whole seconds; a document that is read at once is not read again anyway.

        Args:
            span: the part.
            cpu_s: CPU seconds.
            overrun: it went beyond a limit.

        Raises:
            ArtifactError: nothing can be written.
        """
        if span.last_page is None:
            return
        folder = self._locate(span)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        create_mark(folder / f"{span.first_page}-{span.last_page}-{math.ceil(cpu_s)}{_OVERRUN if overrun else ''}")

    def _locate(self, span: Span) -> Path:
        return self._folder / compute_fingerprint(str(span.path))

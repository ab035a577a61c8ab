"""Names of files as people, models and other machines write them: a name that looks the same names the same file."""

import posixpath
from collections import defaultdict
from collections.abc import Iterable
from difflib import get_close_matches

from drag_ray.search.normal_form import normalise

_MAX_GUESSES, _MAX_COMPARED, _MAX_CHARS = 100, 10_000, 255
"""How often names are compared letter by letter, with how many, and how long ones."""


def normalise_name(name: str) -> str:
    """A name in its normal form, in `/` and without `./`: macOS decomposes its letters, Windows writes `\\`."""
    return posixpath.normpath(normalise(name).replace("\\", "/"))


class FileNames:
    """The files of a collection, found by their names.

    Args:
        names: each once.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = set(names)
        self._by_form: dict[str, list[str]] = defaultdict(list)
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self._names):
            self._by_form[normalise_name(name)].append(name)
            self._by_stem[_read_stem(name)].append(name)
        self._guesses: dict[str, str] = {}

    def find(self, name: str) -> str | None:
        """The file of this name or, where there is none, the only one whose name looks the same."""
        if name in self._names:
            return name
        alike = self._by_form.get(normalise_name(name), [])
        return alike[0] if len(alike) == 1 else None

    def guess(self, name: str) -> str:
        """The file that may be meant by a name that is not found: in another folder, of another case or suffix, with a slip of
        the pen; empty where none is near.
        """
        if name not in self._guesses and len(self._guesses) < _MAX_GUESSES:
            stem = _read_stem(name)
            near = self._by_form.get(normalise_name(name)) or self._by_stem.get(stem) or self._compare(stem)
            self._guesses[name] = next(iter(near), "")
        return self._guesses.get(name, "")

    def _compare(self, stem: str) -> list[str]:
        stems = list(self._by_stem) if len(self._by_stem) <= _MAX_COMPARED and len(stem) <= _MAX_CHARS else []
        return [name for near in get_close_matches(stem, stems, n=1, cutoff=0.8) for name in self._by_stem[near]]


def _read_stem(name: str) -> str:
    """A name without its folder, its suffix and its case."""
    return posixpath.splitext(posixpath.basename(normalise_name(name)))[0].casefold()

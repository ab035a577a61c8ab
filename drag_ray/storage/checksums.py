"""Integrity of the files of a folder: their sizes and hashes, and a quick and a whole comparison with them.

`checksums.jsonl` has a line for each file of the folder, hidden ones left out: they are locks and unfinished writes.

    {"path": "search_index/pages.arrow", "bytes": 7368106, "sha256": "5d0c..."}

A quick look compares the sizes, and the bytes of small files, so that it takes milliseconds. A whole look compares every byte.
The files of a journal and page images have the hash of their bytes in their names, and are not read to be listed.
"""

import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from drag_ray.storage.file_access import reading
from drag_ray.storage.json_text import parse_json

LIST_NAME = "checksums.jsonl"

_SMALL_BYTES, _OPEN_BYTES = 2**20, 64 * 2**10
"""A quick look reads files that are no larger than the first; to open one takes as long as to read the second."""
_MAX_QUICK_FILES = 10_000
_MAX_QUICK_BYTES = 32 * 2**20
"""A quick look at more files or bytes than these takes some of them, others each time."""
_NUM_THREADS = 8
_NUM_SHOWN = 3
_HASH = re.compile(r"[0-9a-f]{16,64}")
_NAMED_BY_HASH = re.compile(r"part-[0-9a-f]{12}-(?P<journal>[0-9a-f]{16})\.parquet|(?P<image>[0-9a-f]{32})\.jpg")


class Checksum(NamedTuple):
    """Size and hash of one file.

    Attributes:
        path: from the folder of the list, with slashes.
        bytes: its size.
        sha256: with which its SHA-256 begins: 64 hexadecimal digits, or as many as its name has.
    """

    path: str
    bytes: int
    sha256: str


class Damage(NamedTuple):
    """A file that is not what was written: where it is in its folder, and what was found and expected."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def list_files(folder: Path, leave_out: Collection[str] = ()) -> list[str]:
    """The paths of the files below `folder` in order. Raises OSError where a folder cannot be listed. `leave_out`: names of
    folders and files that are not listed, wherever they are."""
    return sorted(_walk(folder, leave_out))


def compute_checksums(
    folder: Path, paths: Iterable[str], trust_names: bool = True, known: Iterable[Checksum] = ()
) -> list[Checksum]:
    """The checksums of these files.

    Args:
        trust_names: take the hash in the name of a file of a journal, and of a page image, for that of its bytes.
        known: those of files that need not be read.
    """
    given = {checksum.path: checksum for checksum in known}
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        return list(pool.map(lambda path: given.get(path) or _compute_checksum(folder, path, trust_names), paths))


def read_inner(folder: Path, paths: Iterable[str], places: Iterable[str]) -> Iterator[Checksum]:
    """The checksums of files of a folder by the lists of folders within it; of those alone that were not written since. A list
    that is missing or none says nothing.

    Args:
        paths: of its files.
        places: the folders whose lists our own code has just written: a list that lies in a model of others may say anything.
    """
    there = set(paths)
    for place in places:
        with contextlib.suppress(OSError, ValueError):
            listed = parse_list((folder / place / LIST_NAME).read_text(encoding="utf-8"))
            inner = [one._replace(path=f"{place}/{one.path}") for one in listed if f"{place}/{one.path}" in there]
            written_ns = (folder / place / LIST_NAME).stat().st_mtime_ns
            found = ((one, (folder / one.path).stat()) for one in inner)
            yield from (one for one, now in found if now.st_size == one.bytes and now.st_mtime_ns <= written_ns)


def format_list(checksums: Iterable[Checksum]) -> str:
    """The text of `checksums.jsonl`."""
    return "".join(json.dumps(checksum._asdict()) + "\n" for checksum in checksums)


def parse_list(text: str) -> list[Checksum]:
    """The checksums in the text of a `checksums.jsonl`. Raises ValueError where it is none."""
    try:
        entries = parse_json(f"[{','.join(text.splitlines())}]")
        # Lists of before have a hash of samples, which nobody looks at any more.
        listed = [Checksum(**{name: value for name, value in entry.items() if name != "sample"}) for entry in entries]
        if broken := next((one for one in listed if not _HASH.fullmatch(one.sha256) or type(one.bytes) is not int), None):
            raise ValueError(f"{str(broken)[:200]} has no size or no hash")
        return listed
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None


def find_damage(
    folder: Path, checksums: Sequence[Checksum], whole: bool = False, quick_prefixes: tuple[str, ...] = ()
) -> list[Damage]:
    """Files of a folder that are not as its list says, in order of the paths; files that the list lacks are ignored.

    Args:
        whole: look at every byte.
        quick_prefixes: beginnings of paths at which to look quickly all the same.
    """
    whole_looks = {checksum for checksum in checksums if whole and not checksum.path.startswith(quick_prefixes)}
    others = [checksum for checksum in checksums if checksum not in whole_looks]
    quick = random.sample(others, min(len(others), _MAX_QUICK_FILES))  # in random order
    small = [checksum for checksum in quick if checksum.bytes <= _SMALL_BYTES]
    num_bytes = itertools.accumulate(max(_OPEN_BYTES, checksum.bytes) for checksum in small)
    read = whole_looks.union(checksum for checksum, total in zip(small, num_bytes, strict=True) if total <= _MAX_QUICK_BYTES)
    looked = [*whole_looks, *quick]
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        reasons = pool.map(lambda checksum: compare(folder / checksum.path, checksum, checksum in read), looked)
        return sorted(Damage(checksum.path, reason) for checksum, reason in zip(looked, reasons, strict=True) if reason)


def compare(path: Path, checksum: Checksum, whole: bool = True) -> str:
    """The damage of a file in words; empty if there is none. ArtifactError where memory does not suffice to tell."""
    expected = f"{checksum.bytes:,} bytes were written"
    with reading(path):
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                return f"is no file, {expected}"
            if found.st_size != checksum.bytes:
                return f"has {found.st_size:,} bytes, {expected}"
            if not whole:
                return ""
            with path.open("rb") as stream:
                wanted, digest = checksum.sha256, hashlib.file_digest(stream, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return f"is missing, {expected}"
        except OSError as error:
            return f"cannot be read ({error.strerror or error}), {expected}"
    return "" if digest.startswith(wanted) else f"holds other bytes than were written (SHA-256 {digest[:16]}, was {wanted[:16]})"


def describe_damage(damage: Sequence[Damage]) -> str:
    """The first damaged files and what is wrong with them."""
    more = f"; and {len(damage) - _NUM_SHOWN} more files" if len(damage) > _NUM_SHOWN else ""
    return "; ".join(map(str, damage[:_NUM_SHOWN])) + more


def _raise(error: OSError) -> None:
    raise error  # `os.walk` takes a folder that it cannot list for an empty one


def _walk(folder: Path, leave_out: Collection[str]) -> Iterator[str]:
    for place, dir_names, file_names in os.walk(folder, onerror=_raise):
        dir_names[:] = [name for name in dir_names if name not in leave_out and not name.startswith(".")]
        for name in file_names:
            if name not in leave_out and not name.startswith("."):
                yield Path(place, name).relative_to(folder).as_posix()


def _compute_checksum(folder: Path, path: str, trust_names: bool) -> Checksum:
    with (folder / path).open("rb") as stream:
        num_bytes = os.fstat(stream.fileno()).st_size
        named = _NAMED_BY_HASH.fullmatch(Path(path).name) if trust_names else None
        sha256 = named[named.lastgroup or 0] if named else hashlib.file_digest(stream, "sha256").hexdigest()
    return Checksum(path, num_bytes, sha256)

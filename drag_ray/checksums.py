"""Whether the files of a folder still are what was written: their sizes and hashes, and three ways of looking.

`checksums.jsonl` has a line for each file of the folder, hidden ones left out: they are locks and unfinished writes.

    {"path": "search_index/pages.arrow", "bytes": 7368106, "sha256": "5d0c...", "sample": "91ab..."}

A quick look compares the sizes, all bytes of small files and 16 places of large ones, so that it takes milliseconds. A whole
look compares every byte. The files of a journal and page images have the hash of their bytes in their names, and are not read
to be listed.
"""

import hashlib
import json
import os
import random
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from drag_ray.file_access import reading
from drag_ray.json_text import parse_json

LIST_NAME = "checksums.jsonl"
Look = Literal["size", "sample", "whole"]

_BLOCK_BYTES = 64 * 2**10
_SAMPLE_BLOCKS = 16
_SAMPLE_BYTES = _SAMPLE_BLOCKS * _BLOCK_BYTES
"""Of a file that is no larger, the sample is the whole."""
_MAX_QUICK_FILES = 10_000
_MAX_QUICK_BYTES = 32 * 2**20
"""A quick look at more files or bytes than these takes some of them, others each time."""
_NUM_THREADS = 8
_NUM_SHOWN = 3
_NAMED_BY_HASH = re.compile(r"part-[0-9a-f]{12}-(?P<journal>[0-9a-f]{16})\.parquet|(?P<image>[0-9a-f]{32})\.jpg")


class Checksum(NamedTuple):
    """What was written as one file.

    Attributes:
        path: from the folder of the list, with slashes.
        bytes: its size.
        sha256: with which its SHA-256 begins: 64 hexadecimal digits, or as many as its name has.
        sample: SHA-256 of 16 blocks of 64 KiB, the first and the last among them; empty where the file is no larger.
    """

    path: str
    bytes: int
    sha256: str
    sample: str = ""


class Damage(NamedTuple):
    """A file that is not what was written: where it is in its folder, and what was found and expected."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def list_files(folder: Path, leave_out: Collection[str] = ()) -> list[str]:
    """The paths of the files below `folder` in order.

    Args:
        leave_out: names of folders and files that are not listed, wherever they are.

    Raises:
        OSError: a folder cannot be listed.
    """
    return sorted(_walk(folder, leave_out))


def compute_checksums(folder: Path, paths: Iterable[str], trust_names: bool = True) -> list[Checksum]:
    """The checksums of these files.

    Args:
        trust_names: take the hash in the name of a file of a journal, and of a page image, for that of its bytes.
    """
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        return list(pool.map(lambda path: _compute_checksum(folder, path, trust_names), paths))


def format_list(checksums: Iterable[Checksum]) -> str:
    """The text of `checksums.jsonl`."""
    return "".join(json.dumps(checksum._asdict()) + "\n" for checksum in checksums)


def parse_list(text: str) -> list[Checksum]:
    """The checksums in the text of a `checksums.jsonl`.

    Raises:
        ValueError: it is none.
    """
    try:
        return [Checksum(**entry) for entry in parse_json(f"[{','.join(text.splitlines())}]")]
    except TypeError as error:
        raise ValueError(str(error)) from None


def find_damage(folder: Path, checksums: Sequence[Checksum], whole: bool = False, but: tuple[str, ...] = ()) -> list[Damage]:
    """What of a folder is not as its list says, in order of the paths; what the list does not know is nobody's concern.

    Args:
        whole: look at every byte.
        but: beginnings of paths at which to look quickly all the same.
    """
    quick = [checksum for checksum in checksums if not whole or checksum.path.startswith(but)]
    looks = list(_plan_quick_look(quick))
    if whole:
        looks += [(checksum, "whole") for checksum in checksums if not checksum.path.startswith(but)]
    with ThreadPoolExecutor(_NUM_THREADS) as pool:
        found = pool.map(lambda planned: _look_at(folder, *planned), looks)
        return sorted(damage for damage in found if damage)


def describe_damage(damage: Sequence[Damage]) -> str:
    """The first damaged files and what is wrong with them."""
    more = f"; and {len(damage) - _NUM_SHOWN} more files" if len(damage) > _NUM_SHOWN else ""
    return "; ".join(map(str, damage[:_NUM_SHOWN])) + more


def _plan_quick_look(checksums: Sequence[Checksum]) -> Iterator[tuple[Checksum, Look]]:
    """The files to look at in random order, so that what does not fit in this time may do so the next time."""
    num_left = _MAX_QUICK_BYTES
    for checksum in random.sample(checksums, min(len(checksums), _MAX_QUICK_FILES)):
        num_left -= max(_BLOCK_BYTES, min(checksum.bytes, _SAMPLE_BYTES))  # to open a file takes as long as to read a block
        look: Look = "sample" if num_left >= 0 else "size"
        yield checksum, look


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
        sample = _hash_sample(stream, num_bytes) if num_bytes > _SAMPLE_BYTES else ""
    return Checksum(path, num_bytes, sha256, sample)


def _hash_sample(stream: BinaryIO, num_bytes: int) -> str:
    digest = hashlib.sha256()
    for number in range(_SAMPLE_BLOCKS):
        stream.seek((num_bytes - _BLOCK_BYTES) * number // (_SAMPLE_BLOCKS - 1))
        digest.update(stream.read(_BLOCK_BYTES))
    return digest.hexdigest()


def _look_at(folder: Path, checksum: Checksum, look: Look) -> Damage | None:
    reason = _compare(folder / checksum.path, checksum, look)
    return Damage(checksum.path, reason) if reason else None


def _compare(path: Path, checksum: Checksum, look: Look) -> str:
    """What is wrong with a file; empty if nothing is. ArtifactError where memory does not suffice to tell."""
    expected = f"{checksum.bytes:,} bytes were written"
    with reading(path):
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                return f"is no file, {expected}"
            if found.st_size != checksum.bytes:
                return f"has {found.st_size:,} bytes, {expected}"
            if look == "size":
                return ""
            with path.open("rb") as stream:
                if look == "sample" and checksum.sample:
                    wanted, digest = checksum.sample, _hash_sample(stream, checksum.bytes)
                else:
                    wanted, digest = checksum.sha256, hashlib.file_digest(stream, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return f"is missing, {expected}"
        except OSError as error:
            return f"cannot be read ({error.strerror or error}), {expected}"
    return "" if digest.startswith(wanted) else f"holds other bytes than were written (SHA-256 {digest[:16]}, was {wanted[:16]})"

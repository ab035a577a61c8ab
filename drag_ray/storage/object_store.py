"""A place that a URI names, read and written by whole objects: S3, Google Cloud Storage, Azure, HDFS or a folder.

Who may read and write there is the platform's own matter (the role of a machine, the variables and files of the store's own
tools); a URI with a secret in it is refused.
"""

import contextlib
import logging
import os
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, field_validator
from pydantic_core import PydanticCustomError

from drag_ray.config import SECRET_ERROR, BaseConfig
from drag_ray.errors import ConfigError, DataError, StorageError
from drag_ray.storage.artifacts import whole_or_absent
from drag_ray.storage.file_access import HIDDEN, make_private, writing

_SCHEMES = ("s3", "gs", "abfs", "abfss", "hdfs", "file")
_OPTIONS = ("region", "endpoint_override", "scheme", "retry_limit_seconds", "enable_tls", "replication")
"""of a URI; Arrow takes others, some of them secrets"""
_BLOCK_BYTES = 8 * 2**20
_MAX_READ_BYTES = 2**30
CONNECTIONS = 16
"""Files that are sent or fetched at the same time."""

_logger = logging.getLogger(__name__)


class StorageConfig(BaseConfig):
    """Object store of finished stages beside the run's folder."""

    uri: str = ""
    """object-store folder of this run: finished stages are sent to it, and stages that the run's folder lacks are fetched from
    it: s3://BUCKET/runs/mine, gs://, abfs://, hdfs:// or file:///; empty: none"""

    @field_validator("uri")
    @classmethod
    def _is_a_place(cls, value: str) -> str:
        return value and check_given_uri(value)


def check_uri(uri: str) -> str:
    """The URI of a place, as it was given. Raises ConfigError where it is none, or holds what may be a secret; the message does
    not repeat it."""
    parts = urlsplit(uri)
    if parts.scheme not in _SCHEMES or not (parts.netloc or parts.path.strip("/")):
        raise ConfigError(f"expected {'://, '.join(_SCHEMES)}:// with a bucket or a folder, for example s3://BUCKET/runs/mine")
    user = parts.netloc.rpartition("@")[0]
    allowed = {"gs": user in ("", "anonymous"), "abfs": ":" not in user, "abfss": ":" not in user, "hdfs": ":" not in user}
    unknown = sorted(parse_qs(parts.query, keep_blank_values=True).keys() - set(_OPTIONS))
    if not allowed.get(parts.scheme, not user) or unknown or parts.fragment:
        raise ConfigError(
            f"a URI takes {', '.join(_OPTIONS)}, and no keys: the store's own variables, files and roles say who you are "
            "(AWS_PROFILE, a role of the machine, GOOGLE_APPLICATION_CREDENTIALS, ...)"
        )
    return uri


def check_given_uri(value: str) -> str:
    """`check_uri` for validators of options: what they report does not repeat the value either."""
    try:
        return check_uri(value)
    except ConfigError as error:
        raise PydanticCustomError(SECRET_ERROR, "{problem}", {"problem": str(error)}) from None


def is_uri(text: str) -> bool:
    """True if a text names a place by its scheme, and not a file or a folder."""
    return "://" in text


NameOrUri = Annotated[str, AfterValidator(lambda value: check_given_uri(value) if is_uri(value) else value)]
"""An option that may be a place in an object store, where it is none of the other things that it may be."""


class ObjectState(NamedTuple):
    """An object by its key: its bytes, and when it was last changed, in nanoseconds."""

    key: str
    bytes: int
    changed_ns: int


class ObjectStore:
    """The objects at a URI, by keys: paths below it, with slashes. Raises ConfigError where the URI is none, and StorageError
    where the store does not answer. `uri`: see `check_uri`."""

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        self.uri = check_uri(uri).partition("?")[0].rstrip("/")
        with self._reaching():
            self._system, root = fs.FileSystem.from_uri(uri)
        self._root = root.rstrip("/")

    def list_states(self, folder: str = "") -> list[ObjectState]:
        """All objects below a folder in order of their keys; the object that the URI itself names has none."""
        from pyarrow import fs

        place = self._locate(folder)
        with self._reaching(folder):
            found: Any = self._system.get_file_info(fs.FileSelector(place, allow_not_found=True, recursive=True))
            found = found or [self._system.get_file_info(place)]
        start = len(self._root) + 1
        return sorted(ObjectState(info.path[start:], info.size, info.mtime_ns or 0) for info in found if info.is_file)

    def read(self, key: str) -> bytes | None:
        """A small object, None where there is none."""
        with self._reaching(key):
            found: Any = self._system.get_file_info(self._locate(key))
            if not found.is_file:
                return None
            if found.size > _MAX_READ_BYTES:
                raise StorageError(f"{self.uri}/{key}: has {found.size:,} bytes, at most {_MAX_READ_BYTES:,} are read of it.")
            with self._system.open_input_stream(self._locate(key)) as stream:
                return stream.read()

    def fetch(self, key: str, path: Path) -> None:
        """Copy an object into a file. Arrow's own copying does not tell a full disk of this machine from a store that refuses."""
        with path.open("wb") as target:
            for block in self._read_blocks(key):
                target.write(block)

    def send(self, path: Path, key: str, twin: str = "") -> bool:
        """Copy a file into an object, which is whole or of fewer bytes. Returns whether bytes were sent. `twin`: the key of an
        object with the same bytes, which a store that can copies itself."""
        from pyarrow import fs

        with self._reaching(key), self._writing(key) as target:
            if twin:
                with contextlib.suppress(OSError, NotImplementedError):
                    self._system.copy_file(self._locate(twin), target)
                    return False
            fs.copy_files(str(path), target, fs.LocalFileSystem(), self._system)
        return True

    @contextlib.contextmanager
    def _writing(self, key: str) -> Generator[str]:
        """Path to write an object to; in a folder of this machine, which its owner alone can open, a scratch file beside it."""
        if self._system.type_name != "local":
            yield self._locate(key)
            return
        with whole_or_absent(make_private(Path(self._root)) / key) as scratch:
            yield str(scratch)

    def _read_blocks(self, key: str) -> Iterator[bytes]:
        with self._reaching(key), self._system.open_input_stream(self._locate(key)) as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block

    def _locate(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    @contextlib.contextmanager
    def _reaching(self, key: str = "") -> Generator[None]:
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            reason = str(error) if isinstance(error, pa.ArrowException) else error.strerror or str(error)
            place = f"{self.uri}/{key}" if key else self.uri
            raise StorageError(
                f"{place}: cannot be reached or is refused ({reason}). What was moved is kept: try again."
            ) from error


def fetch_files(uri: str, folder: Path) -> Path:
    """Copy all objects at a place, or the one that the URI names, but for hidden ones. What is there as it lies there is kept.

    Args:
        uri: see `check_uri`.
        folder: which workers see as well.

    Returns:
        The folder, or the one file in it.

    Raises:
        DataError: nothing lies there.
        StorageError: the store does not answer.
        ArtifactError: a file cannot be written.
    """
    store = ObjectStore(uri)
    paths = {state: folder / (state.key or PurePosixPath(urlsplit(uri).path).name) for state in store.list_states()}
    wanted = {state: path for state, path in paths.items() if not _is_hidden(path.relative_to(folder))}
    if not wanted:
        raise DataError(f"{store.uri}: nothing lies there. Check the URI, and that this machine may read it.")
    missing = {state: path for state, path in wanted.items() if not _is_there(state, path)}
    _logger.info(
        f"{store.uri}: {len(missing):,} of {len(wanted):,} files, {sum(state.bytes for state in missing):,} bytes, to copy"
    )
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda item: _copy(store, *item), missing.items()))
    [first, *others] = wanted
    return folder if others or first.key else wanted[first]


def _is_hidden(path: Path) -> bool:
    """True if a part of a path is hidden, as `..` is too."""
    return any(part.startswith(HIDDEN) for part in path.parts)


def _is_there(state: ObjectState, path: Path) -> bool:
    with writing(path):
        found = path.stat() if path.is_file() else None
    return found is not None and (found.st_size, found.st_mtime_ns) == (state.bytes, state.changed_ns)


def _copy(store: ObjectStore, state: ObjectState, path: Path) -> None:
    with whole_or_absent(path) as scratch:
        store.fetch(state.key, scratch)
        os.utime(scratch, ns=(state.changed_ns, state.changed_ns))

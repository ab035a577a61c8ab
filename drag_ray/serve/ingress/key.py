"""The endpoint's keys: where they come from, which documents each may see, and what is left of them on their way to the engines.

A file of keys holds one key and nothing else, or is TOML where keys are to see the documents of some groups
(`corpus.access_column`):

    [[keys]]
    key = "KEY"
    groups = ["sales", "law"]

The group `*` stands for all documents, those without a group among them.
"""

import hashlib
import hmac
import os
import secrets
import stat
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from drag_ray.cluster.connection import is_submitted_job
from drag_ray.errors import ServeError
from drag_ray.search.metadata import EVERYTHING
from drag_ray.serve.config import ServeConfig

KEY_VARIABLE = "DRAG_RAY_API_KEY"
_MIN_KEY_CHARS = 16
_MAKE_KEY = "python -c 'import secrets; print(secrets.token_urlsafe())'"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

Groups = frozenset[str] | None
"""Of documents that a key may see; None where nothing is said, and where requests need no key."""


@dataclass(frozen=True)
class Key:
    """A key, and the groups of documents that it may see."""

    text: str = field(repr=False)
    groups: Groups = None


@dataclass(frozen=True)
class KeyHash:
    """Salted hash that recognises a key without holding it: this, and never the key, is what Ray carries and keeps."""

    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    groups: Groups = None

    def matches(self, candidate: bytes) -> bool:
        """True if `candidate` is the key; compared in constant time."""
        return hmac.compare_digest(_hash(self.salt, candidate), self.digest)


def hash_key(key: str, groups: Groups = None) -> KeyHash:
    """The hash of a key, with a salt of its own."""
    salt = secrets.token_bytes(16)
    return KeyHash(salt, _hash(salt, key.encode()), groups)


def find_key(keys: Sequence[KeyHash], candidate: bytes) -> KeyHash | None:
    """The one that recognises a candidate. All are asked, so that the time does not say which it was."""
    return next(iter([key for key in keys if key.matches(candidate)]), None)


def check_groups(keys: Sequence[Key | KeyHash], access_column: str) -> None:
    """Refuse an index whose documents are for some groups alone where keys do not say which they may see, and the reverse. Raises
    ServeError, which says what to write into the file of keys."""
    if access_column and (not keys or any(key.groups is None for key in keys)):
        raise ServeError(
            f"the index has documents for some groups alone (corpus.access_column {access_column!r}), and the endpoint has "
            f"{'keys that do not say theirs' if keys else 'no key'}. Write into serve.api_key_file, for each: [[keys]], "
            f'key = "KEY", groups = ["GROUP"]; the group {EVERYTHING} sees all documents.'
        )
    if not access_column and any(key.groups is not None and EVERYTHING not in key.groups for key in keys):
        raise ServeError(
            "serve.api_key_file: keys are for some groups alone, and the index does not say which documents these may see. "
            f"Build it with corpus.access_column, or give the keys the group {EVERYTHING}, which sees all documents."
        )


def _hash(salt: bytes, key: bytes) -> bytes:
    # A fast hash will do: keys are long and drawn at random, as `_check_key` asks, and every request is checked.
    return hashlib.sha256(salt + key).digest()


def read_keys(config: ServeConfig) -> tuple[Key, ...]:
    """The keys of which requests must carry one, from the file that the options name or from the environment; empty for none.
    Raises ServeError where the file cannot be read or others may read it, a key is too short or cannot stand in a header, or
    there is none and the endpoint would listen beyond this machine."""
    if config.api_key.get_secret_value():
        keys, source = (Key(config.api_key.get_secret_value()),), "serve.api_key"
    elif config.api_key_file:
        source = f"serve.api_key_file {str(config.api_key_file)!r}"
        keys = _parse_keys(_read_key_file(config.api_key_file), source)
    else:
        key, source = os.environ.get(KEY_VARIABLE, ""), f"the environment variable {KEY_VARIABLE}"
        keys = (Key(key),) if key else ()
        if key and is_submitted_job():
            raise ServeError(
                f"{KEY_VARIABLE}: the dashboard shows the variables of a submitted job. Write a new key into a file that the "
                "head can read, run `chmod 600` on it, and name it with --serve.api-key-file."
            )
    if not keys and not is_loopback(config.host):
        raise ServeError(
            f"serve.host {config.host!r} lets other machines in, but there is no key. Set {KEY_VARIABLE} "
            f"(`export {KEY_VARIABLE}=$({_MAKE_KEY})`) or --serve.api-key-file, or listen on 127.0.0.1."
        )
    for key in keys:
        _check_key(key.text, source)
    return keys


def is_loopback(host: str) -> bool:
    """True if only this machine can reach this address. A name counts as reachable from elsewhere, unless it is `localhost`."""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _read_key_file(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            key = stream.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ServeError(
            f"serve.api_key_file {str(path)!r}: cannot be read ({error}). It must hold the key and nothing else, or [[keys]]."
        ) from None
    if mode & _OTHERS:
        raise ServeError(
            f"serve.api_key_file {str(path)!r}: others may have access to it (mode {stat.S_IMODE(mode):o}). Run: chmod 600 {path}"
        )
    if not key:
        raise ServeError(f"serve.api_key_file {str(path)!r} is empty. Write a key into it: {_MAKE_KEY}")
    return key


def _parse_keys(text: str, source: str) -> tuple[Key, ...]:
    """The keys of a file. What is said of a wrong one quotes nothing of it."""
    if "[[" not in text:
        return (Key(text),)
    try:
        given = tomllib.loads(text)
        if set(given) != {"keys"} or not all(set(one) == {"key", "groups"} for one in given["keys"]):
            raise ValueError("each of [[keys]] has key and groups, and nothing else")
        keys = tuple(Key(one["key"], frozenset(one["groups"])) for one in given["keys"])
        if not all(isinstance(text, str) and text for one in given["keys"] for text in (one["key"], *one["groups"])):
            raise ValueError("keys and groups are texts")
        if not all(isinstance(one["groups"], list) for one in given["keys"]) or len({key.text for key in keys}) < len(keys):
            raise ValueError("groups are a list, and no key stands there twice")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        problem = error if isinstance(error, ValueError) else "each of [[keys]] has key and groups"
        raise ServeError(f'{source}: cannot be read ({problem}). Write [[keys]], key = "KEY", groups = ["GROUP"].') from None
    return keys


def _check_key(key: str, source: str) -> None:
    fits_header = key.isascii() and key.isprintable() and " " not in key
    if len(key) < _MIN_KEY_CHARS or not fits_header:
        raise ServeError(
            f"{source}: a key has at least {_MIN_KEY_CHARS} characters, printable ASCII without spaces. Make one: {_MAKE_KEY}"
        )

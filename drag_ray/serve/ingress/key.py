"""The endpoint's key: where it comes from, and what is left of it on its way to the engines."""

import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from drag_ray.cluster.connection import is_submitted_job
from drag_ray.errors import ServeError
from drag_ray.serve.config import ServeConfig

KEY_VARIABLE = "DRAG_RAY_API_KEY"
_MIN_KEY_CHARS = 16
_MAKE_KEY = "python -c 'import secrets; print(secrets.token_urlsafe())'"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class KeyHash:
    """Salted hash that recognises a key without holding it: this, and never the key, is what Ray carries and keeps."""

    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    def matches(self, candidate: bytes) -> bool:
        """True if `candidate` is the key; compared in constant time."""
        return hmac.compare_digest(_hash(self.salt, candidate), self.digest)


def hash_key(key: str) -> KeyHash:
    """The hash of a key, with a salt of its own."""
    salt = secrets.token_bytes(16)
    return KeyHash(salt, _hash(salt, key.encode()))


def _hash(salt: bytes, key: bytes) -> bytes:
    # A fast hash will do: keys are long and drawn at random, as `_check_key` asks, and every request is checked.
    return hashlib.sha256(salt + key).digest()


def read_key(config: ServeConfig) -> str:
    """The key that requests must carry, from the file that the options name or from the environment; empty for none.

    Raises:
        ServeError: the file cannot be read or others may read it, the key is too short or cannot stand in a header,
            or there is none and the endpoint would listen beyond this machine.
    """
    if config.api_key.get_secret_value():
        key, source = config.api_key.get_secret_value(), "serve.api_key"
    elif config.api_key_file:
        key, source = _read_key_file(config.api_key_file), f"serve.api_key_file {str(config.api_key_file)!r}"
    else:
        key, source = os.environ.get(KEY_VARIABLE, ""), f"the environment variable {KEY_VARIABLE}"
        if key and is_submitted_job():
            raise ServeError(
                f"{KEY_VARIABLE}: the variables of a submitted job stand in the dashboard. Write a new key into a file that the "
                "head can read, run `chmod 600` on it, and name it with --serve.api-key-file."
            )
    if not key and not is_loopback(config.host):
        raise ServeError(
            f"serve.host {config.host!r} lets other machines in, but there is no key. Set {KEY_VARIABLE} "
            f"(`export {KEY_VARIABLE}=$({_MAKE_KEY})`) or --serve.api-key-file, or listen on 127.0.0.1."
        )
    if key:
        _check_key(key, source)
    return key


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
            f"serve.api_key_file {str(path)!r}: cannot be read ({error}). It must hold the key and nothing else."
        ) from None
    if mode & _OTHERS:
        raise ServeError(
            f"serve.api_key_file {str(path)!r}: others may have access to it (mode {stat.S_IMODE(mode):o}). Run: chmod 600 {path}"
        )
    if not key:
        raise ServeError(f"serve.api_key_file {str(path)!r} is empty. Write a key into it: {_MAKE_KEY}")
    return key


def _check_key(key: str, source: str) -> None:
    fits_header = key.isascii() and key.isprintable() and " " not in key
    if len(key) < _MIN_KEY_CHARS or not fits_header:
        raise ServeError(
            f"{source}: a key has at least {_MIN_KEY_CHARS} characters, printable ASCII without spaces. Make one: {_MAKE_KEY}"
        )

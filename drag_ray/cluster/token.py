"""The secret that Ray asks of everyone who talks to it: where it lies, and how it is made on first use.

Whoever can talk to a Ray cluster can run any program there, so Ray compares a token with each call (`RAY_AUTH_MODE=token`,
https://docs.ray.io/en/latest/ray-security/token-auth.html).  Ray looks for it in `RAY_AUTH_TOKEN`, in the file that
`RAY_AUTH_TOKEN_PATH` names, and in `~/.ray/auth_token`, in this order.  Ray would write that file for everyone to read.
"""

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from drag_ray.errors import ConfigError

_TOKEN_VARIABLE = "RAY_AUTH_TOKEN"
_PATH_VARIABLE = "RAY_AUTH_TOKEN_PATH"
_NUM_BYTES = 32


def name_token_source() -> str:
    """Where Ray finds the token: a variable's name or a file's."""
    return _TOKEN_VARIABLE if os.environ.get(_TOKEN_VARIABLE) else str(locate_token())


def locate_token() -> Path:
    """The file in which Ray looks for the token when `RAY_AUTH_TOKEN` is not set."""
    given = os.environ.get(_PATH_VARIABLE)
    return Path(given) if given else Path.home() / ".ray" / "auth_token"


def ensure_token(may_create: bool) -> None:
    """Make sure that there is a token, and that its owner alone can read `~/.ray/auth_token`.

    Args:
        may_create: write a new token to `~/.ray/auth_token` if there is none; a cluster that runs already has its own.

    Raises:
        ConfigError: there is no token, its file cannot be read or written, or it holds none.
    """
    if os.environ.get(_TOKEN_VARIABLE):
        return
    path = locate_token()
    try:
        if not os.environ.get(_PATH_VARIABLE):
            if may_create:
                _create_token(path)
            _close_to_others(path)
        if not path.read_text(encoding="utf-8").strip():
            raise ConfigError(f"{path}: holds no token. Remove the file, or write the cluster's token into it.")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file, so there is no token to show to the Ray cluster. Copy the file from the machine that started "
            f"the cluster (`ray get-auth-token` prints it there), or set {_TOKEN_VARIABLE}."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: Ray's token cannot be read or written ({error}). Make the file yours, or remove it."
        ) from error


def _create_token(path: Path) -> None:
    """Write a new token, whole at once: of two processes that come first together, one writes and both read the same."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as scratch:  # for the owner alone
        scratch.write(secrets.token_hex(_NUM_BYTES))
        scratch.flush()
        with contextlib.suppress(FileExistsError):
            os.link(scratch.name, path)


def _close_to_others(path: Path) -> None:
    status = path.stat()
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        path.chmod(0o600)

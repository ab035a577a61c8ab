"""Ray's token: made once, for its owner alone, and never in the place of a cluster's own."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drag_ray.cluster.connection import ensure_token, locate_token
from drag_ray.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has never used Ray."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_first_use_makes_a_token_that_its_owner_alone_can_read_and_the_second_keeps_it() -> None:
    ensure_token(may_create=True)
    token = locate_token().read_text()
    assert len(token) == 64
    assert stat.S_IMODE(locate_token().stat().st_mode) == 0o600
    assert stat.S_IMODE(locate_token().parent.stat().st_mode) == 0o700
    ensure_token(may_create=True)
    assert locate_token().read_text() == token
    assert list(locate_token().parent.iterdir()) == [locate_token()]


def test_a_token_that_ray_wrote_for_everyone_to_read_is_closed_to_them(home: Path) -> None:
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text("a" * 64)
    (home / ".ray" / "auth_token").chmod(0o644)
    ensure_token(may_create=False)
    assert stat.S_IMODE(locate_token().stat().st_mode) == 0o600


def test_processes_that_come_first_together_find_the_same_token() -> None:
    def read(_: int) -> str:
        ensure_token(may_create=True)
        return locate_token().read_text()

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(read, range(64)))) == 1


def test_a_cluster_that_runs_already_is_shown_no_token_of_our_own_making() -> None:
    with pytest.raises(ConfigError, match=r"auth_token: no such file.*Copy the file from the machine that started the cluster"):
        ensure_token(may_create=False)
    assert not locate_token().exists()


def test_a_token_in_a_variable_or_in_a_file_of_the_users_choice_is_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = home / "mounted"
    chosen.write_text("a" * 64)
    chosen.chmod(0o444)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(chosen))
    ensure_token(may_create=True)
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o444
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "missing"))
    with pytest.raises(ConfigError, match="missing: no such file"):
        ensure_token(may_create=True)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    ensure_token(may_create=False)
    assert not (home / ".ray").exists()


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_a_file_that_holds_no_token_is_named(home: Path, content: bytes) -> None:
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_bytes(content)
    with pytest.raises(ConfigError, match=r"\.ray/auth_token: (holds no token|Ray's token cannot be read)"):
        ensure_token(may_create=True)

"""Sources of the endpoint's key, and values in its place that are no key."""

import pickle
from pathlib import Path

import pytest

from drag_ray.errors import ServeError
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.key import KEY_VARIABLE, Key, find_key, hash_key, is_loopback, read_keys

KEY = "a-key-for-this-test-alone"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def write_key(folder: Path, text: str = f"{KEY}\n", mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "::1", "::ffff:127.0.0.1"])
def test_this_machine_alone_needs_no_key(host: str) -> None:
    assert is_loopback(host)
    assert read_keys(ServeConfig(host=host)) == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "::ffff:192.0.2.7", "", "127.1", "localhost.example", "myhost"])
def test_other_machines_are_not_let_in_without_a_key(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServeError, match=rf"no key. Set {KEY_VARIABLE} .*--serve.api-key-file"):
        read_keys(ServeConfig(host=host))
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    assert read_keys(ServeConfig(host=host)) == (Key(KEY),)


def test_a_key_file_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "the-key-of-the-environment")
    assert read_keys(ServeConfig(api_key_file=write_key(tmp_path))) == (Key(KEY),)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644])
def test_a_key_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = write_key(tmp_path, mode=mode)
    with pytest.raises(ServeError, match=rf"mode {mode:o}\). Run: chmod 600 {path}"):
        read_keys(ServeConfig(api_key_file=path))


@pytest.mark.parametrize("text", ["too-short", "two words, sixteen characters", "schlüssel-mit-umlaut", "a\tb" * 8, ""])
def test_a_key_that_is_weak_or_fits_no_header_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ServeError, match=r"secrets.token_urlsafe") as error:
        read_keys(ServeConfig(api_key_file=write_key(tmp_path, text)))
    assert not text or text not in str(error.value)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"nowhere': cannot be read"):
        read_keys(ServeConfig(api_key_file=tmp_path / "nowhere"))


def test_a_submitted_job_takes_no_key_from_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with pytest.raises(ServeError, match=r"the dashboard shows the variables.*--serve.api-key-file"):
        read_keys(ServeConfig())
    assert read_keys(ServeConfig(api_key_file=write_key(tmp_path))) == (Key(KEY),)


def test_a_hash_knows_its_key_and_holds_no_part_of_it() -> None:
    known = hash_key(KEY)
    assert known.matches(KEY.encode())
    assert not any(known.matches(other) for other in (b"", KEY.upper().encode(), KEY[:-1].encode(), KEY.encode() + b" "))
    carried = pickle.dumps(known)
    assert KEY.encode() not in carried
    assert pickle.loads(carried).matches(KEY.encode())
    assert hash_key(KEY) != known  # two endpoints with one key cannot be told by their hashes
    assert known.digest.hex()[:8] not in repr(known)


def test_a_file_of_keys_says_which_documents_each_may_see(tmp_path: Path) -> None:
    text = f'[[keys]]\nkey = "{KEY}"\ngroups = ["sales", "human resources"]\n\n[[keys]]\nkey = "{KEY}-2"\ngroups = ["*"]\n'
    keys = read_keys(ServeConfig(api_key_file=write_key(tmp_path, text)))
    assert keys == (Key(KEY, frozenset({"sales", "human resources"})), Key(f"{KEY}-2", frozenset({"*"})))
    assert KEY not in repr(keys)
    hashes = [hash_key(key.text, key.groups) for key in keys]
    found = find_key(hashes, f"{KEY}-2".encode())
    assert found is not None
    assert found.groups == frozenset({"*"})
    assert find_key(hashes, b"another-key-of-somebody") is None
    assert KEY.encode() not in pickle.dumps(hashes)


@pytest.mark.parametrize(
    "text",
    [
        f'[[keys]]\nkey = "{KEY}"\n',
        f'[[keys]]\nkey = "{KEY}"\ngroups = "sales"\n',
        f'[[keys]]\nkey = "{KEY}"\ngroups = [1]\n',
        f'[[keys]]\nkey = "{KEY}"\ngroups = [["sales"]]\n',
        f'[[keys]]\nkey = "{KEY}"\ngroups = [""]\n',
        f'[[keys]]\nkey = "{KEY}"\ngroups = ["a"]\nrole = "b"\n',
        f'[[keys]]\nkey = "{KEY}"\ngroups = ["a"]\n[[keys]]\nkey = "{KEY}"\ngroups = ["b"]\n',
        f'[keys]\nkey = "{KEY}"\ngroups = ["a"]\n',
        f'[[keys]]\nkey = ["{KEY}"]\ngroups = ["a"]\n',
        f'[[keys]\nkey = "{KEY}"\n',
        f"[[keys]]\nkey = {KEY}\n",
        f'[[keys]]\nkey = "{KEY}"\ngroups = {"[" * 3_000}{"]" * 3_000}\n',
        '[[keys]]\nkey = "short"\ngroups = ["a"]\n',
        "[]",
        "keys = []",
    ],
)
def test_a_file_of_keys_that_can_be_read_otherwise_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ServeError) as error:
        read_keys(ServeConfig(api_key_file=write_key(tmp_path, text)))
    assert KEY not in str(error.value)

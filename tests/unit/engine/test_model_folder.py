"""Places of models: folders, URIs, the Hub, and the embedded one, which is unpacked by one process at a time."""

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.model_folder import locate_model, resolve_model, resolve_name
from drag_ray.errors import ConfigError
from drag_ray.pipeline.run_config import RunConfig


@pytest.fixture
def model_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is reached by its URI; the machine's cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (folder := tmp_path / "bucket" / "tiny" / "sub").mkdir(parents=True)
    (folder.parent / "config.json").write_text("{}")
    (folder / "weights").write_bytes(b"w" * 3000)
    return folder.parent


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["Qwen/Qwen3-VL-8B-Thinking", "models/mine", "/shared/models/mine"])
def test_folders_and_names_of_the_hub_are_taken_as_they_are(name: str) -> None:
    assert resolve_model(name) == name


def test_a_model_at_a_uri_is_copied_once_whoever_asks_and_another_one_there_apart(model_dir: Path) -> None:
    with ThreadPoolExecutor() as threads:
        [copy] = {Path(found) for found in threads.map(resolve_model, 4 * [f"file://{model_dir}"])}
    assert read_files(copy) == read_files(model_dir)
    written = (copy / "sub" / "weights").stat()
    assert locate_model(f"file://{model_dir}", "embedding.model") == copy
    assert (copy / "sub" / "weights").stat() == written
    assert [path.name for path in copy.parent.iterdir() if not path.name.startswith(".lock")] == [copy.name]
    first = Path(resolve_model(f"file://{model_dir}"))
    (model_dir / "sub" / "weights").write_bytes(b"v" * 4000)
    second = Path(resolve_model(f"file://{model_dir}"))
    assert (first / "sub" / "weights").read_bytes() == b"w" * 3000
    assert (second / "sub" / "weights").read_bytes() == b"v" * 4000


def test_a_copy_that_was_interrupted_is_no_model_and_is_gone_on_with(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(uri: str, folder: Path) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("drag_ray.engine.models.model_folder.fetch_files", fail)
        with pytest.raises(KeyboardInterrupt):
            resolve_model(f"file://{model_dir}")
    copy = Path(resolve_model(f"file://{model_dir}"))
    assert read_files(copy) == read_files(model_dir)
    assert not list(copy.parent.glob("*.unfinished"))


def test_a_place_without_a_model_is_refused_and_a_folder_is_named_so_that_it_is_found_from_anywhere(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (model_dir / "sub", model_dir / "none"):
        with pytest.raises(ConfigError, match=rf"file://{place}: no config.json or modules.json"):
            resolve_model(f"file://{place}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert (resolve_name("model"), resolve_name("some/model")) == (str(tmp_path / "model"), "some/model")


def test_a_uri_with_a_key_in_it_is_refused_by_every_option_of_a_model() -> None:
    for section in ("engine", "embedding", "image_embedding"):
        with pytest.raises(ValueError, match="and no keys") as caught:
            RunConfig.model_validate({section: {"model": "s3://name:hidden@bucket/model"}})
        assert "hidden" not in str(caught.value.errors(include_input=False))  # type: ignore[attr-defined]
    assert EngineConfig(model="s3://bucket/model").model == "s3://bucket/model"


def test_what_is_no_folder_is_a_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in the cache that the Hub's own client keeps, without a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    cached = tmp_path / "models--some--model"
    for name, text in (("refs/main", "abc"), ("snapshots/abc/modules.json", "[]")):
        (cached / name).parent.mkdir(parents=True)
        (cached / name).write_text(text)
    assert locate_model("some/model", "embedding.model") == cached / "snapshots" / "abc"
    with pytest.raises(
        ConfigError,
        match=r"embedding\.model 'some/other': no such folder \(is it trained yet\?\), and no model of the Hugging Face Hub",
    ):
        locate_model("some/other", "embedding.model")
    with pytest.raises(ConfigError, match=r"rerank\.model '/no/such/folder': no such folder"):
        locate_model("/no/such/folder", "rerank.model")


UNPACK = """
import fcntl, sys
from pathlib import Path
from drag_ray.engine.models import embedded

folder = Path(sys.argv[1])
sys.executable = str(folder / "unpack")
with (folder / ".lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    embedded._unpack_gguf(Path("model.gguf"), folder / "model", lock.fileno())
"""


def test_nobody_unpacks_beside_the_child_of_a_killed_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "end")
    (tmp_path / "unpack").write_text(f"#!/bin/sh\necho > {tmp_path}/begun\nread line < {tmp_path}/end\n")
    (tmp_path / "unpack").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", UNPACK, str(tmp_path)], env=environment)
    (tmp_path / "begun").read_text()
    process.kill()
    process.wait()
    with (tmp_path / ".lock").open("w") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (tmp_path / "end").write_text("\n")
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drag_ray").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"drag_ray, where it is unpacked to, cannot be written.*XDG_CACHE_HOME"):
        embedded_model_dir()

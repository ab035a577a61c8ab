from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.encoders.embedding_folder import locate_model
from drag_ray.engine.models.model_folder import resolve_model
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


def test_a_model_at_a_uri_is_copied_once_whoever_asks(model_dir: Path) -> None:
    with ThreadPoolExecutor() as threads:
        [copy] = {Path(found) for found in threads.map(resolve_model, 4 * [f"file://{model_dir}"])}
    assert read_files(copy) == read_files(model_dir)
    written = (copy / "sub" / "weights").stat()
    assert locate_model(f"file://{model_dir}", "embedding.model") == copy
    assert (copy / "sub" / "weights").stat() == written
    assert [path.name for path in copy.parent.iterdir() if not path.name.startswith(".lock")] == [copy.name]


def test_another_model_at_the_same_uri_gets_a_copy_of_its_own(model_dir: Path) -> None:
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


def test_a_place_without_a_model_is_refused_and_named(model_dir: Path) -> None:
    for place in (model_dir / "sub", model_dir / "none"):
        with pytest.raises(ConfigError, match=rf"file://{place}: no config.json or modules.json"):
            resolve_model(f"file://{place}")


def test_a_uri_with_a_key_in_it_is_refused_by_every_option_of_a_model() -> None:
    for section in ("engine", "embedding", "image_embedding"):
        with pytest.raises(ValueError, match="and no keys") as caught:
            RunConfig.model_validate({section: {"model": "s3://name:hidden@bucket/model"}})
        assert "hidden" not in str(caught.value.errors(include_input=False))  # type: ignore[attr-defined]
    assert EngineConfig(model="s3://bucket/model").model == "s3://bucket/model"

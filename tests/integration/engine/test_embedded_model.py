"""The embedded model is unpacked whole, or not at all, whichever process wants it first."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from drag_ray.engine.models import embedded
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.errors import ConfigError


@pytest.fixture
def made_by_setup() -> dict[str, bytes]:
    return read_folder(embedded_model_dir())


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "drag_ray"


@pytest.fixture
def second_of_two_processes() -> Iterator[None]:
    """This process is one of a group, as a training process of Ray Train is when it asks for the model."""
    torch.distributed.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow  # `make setup` unpacks it; the test below shows that a process of its own does, which is in no group
@pytest.mark.usefixtures("second_of_two_processes")
def test_a_process_that_is_not_the_first_of_a_group_unpacks_all(made_by_setup: dict[str, bytes], empty_cache: Path) -> None:
    model_dir = embedded_model_dir()
    assert model_dir.parent == empty_cache
    assert read_folder(model_dir) == made_by_setup


def test_a_file_that_is_no_model_leaves_no_folder_behind(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF and no more")
    monkeypatch.setattr(embedded, "_find_file", lambda module, pattern: broken)
    with pytest.raises(ConfigError, match=r"broken\.gguf could not be unpacked .* the reason is above") as caught:
        embedded_model_dir()
    assert isinstance(caught.value.__context__, subprocess.CalledProcessError)
    assert not any(path.is_dir() for path in empty_cache.iterdir())

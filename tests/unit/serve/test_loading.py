"""Which adapters a request may load."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.record import AgentRecord, write_record
from drag_ray.engine.models.adapter import read_base_model, write_base_model
from drag_ray.serve.adapters.adapter_files import AdapterFolders, LoadRequest
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.limits import RefusalError


def make_base(folder: Path, hidden_size: int) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": hidden_size, "num_hidden_layers": 1}))
    return str(folder)


def make_adapter(folder: Path, base: str, task_type: str = "CAUSAL_LM", rank: int = 8, value: float = 1.0) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": 16, "task_type": task_type}))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    weights = {name: torch.ones(rank, 8), name.replace("lora_A", "lora_B"): torch.full((8, rank), value)}
    save_file(weights, folder / "adapter_model.safetensors")
    write_base_model(folder, read_base_model(base))
    return folder


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    (tmp_path / "allowed").mkdir()
    return tmp_path / "allowed"


@pytest.fixture
def folders(tmp_path: Path, allowed: Path) -> AdapterFolders:
    return AdapterFolders(
        ServeConfig(adapter_dirs=(allowed,)), read_base_model(make_base(tmp_path / "base", 8)), AgentConfig(), 8
    )


def ask(folders: AdapterFolders, path: Any, name: Any = "later") -> LoadRequest:
    return folders.check({"lora_name": name, "lora_path": path, "load_inplace": True})


def test_an_adapter_in_the_folder_is_loaded_from_where_it_really_lies(
    tmp_path: Path, allowed: Path, folders: AdapterFolders
) -> None:
    adapter = make_adapter(allowed / "v2", str(tmp_path / "base"))
    (allowed / "newest").symlink_to(adapter)
    wanted = LoadRequest("later", str(adapter), replaces=True)
    assert (
        ask(folders, str(adapter)) == ask(folders, str(allowed / "newest")) == ask(folders, f"{allowed}/../allowed/v2") == wanted
    )


def test_an_adapter_of_another_index_is_loaded_and_its_answer_says_so(
    tmp_path: Path, allowed: Path, folders: AdapterFolders
) -> None:
    adapter = make_adapter(allowed / "v2", str(tmp_path / "base"))
    write_record(adapter, AgentRecord(agent=AgentConfig(), index_fingerprint="0123456789abcdef"))
    warnings = [
        ask(replace(folders, index_fingerprint=served), str(adapter)).warning for served in ("0123456789abcdef", "", "ff")
    ]
    assert warnings[:2] == ["", ""]
    assert warnings[2].startswith(" It was trained with another index (0123456789abcdef) than is served (ff)")


def test_what_lies_outside_gets_one_answer_whether_it_is_there_or_not(
    tmp_path: Path, allowed: Path, folders: AdapterFolders
) -> None:
    outside = make_adapter(tmp_path / "allowed-too", str(tmp_path / "base"))
    (allowed / "link").symlink_to(outside)
    loop = allowed / "loop"
    loop.symlink_to(loop)
    paths = [
        outside,
        allowed / "link",
        f"{allowed}/../allowed-too",
        tmp_path / "nowhere",
        "/etc",
        "someone/adapter",
        "~",
        "",
        "a\0b",
    ]
    for path in [*paths, loop / "x"]:
        with pytest.raises(RefusalError, match=r"lies in none of the folders of serve.adapter_dirs") as error:
            ask(folders, str(path))
        assert error.value.status == 403


def test_an_adapter_that_is_none_or_another_model_s_is_refused_with_the_reason(
    tmp_path: Path, allowed: Path, folders: AdapterFolders
) -> None:
    make_adapter(allowed / "reward", str(tmp_path / "base"), "SEQ_CLS")
    make_adapter(allowed / "large", str(tmp_path / "base"), rank=16)
    make_adapter(allowed / "idle", str(tmp_path / "base"), value=0)
    make_adapter(allowed / "broken", str(tmp_path / "base"), value=math.nan)
    (make_adapter(allowed / "pickle", str(tmp_path / "base")) / "adapter_model.safetensors").rename(
        allowed / "pickle" / "adapter_model.bin"
    )
    make_adapter(allowed / "other", make_base(tmp_path / "large", 16))
    (allowed / "empty").mkdir()
    for name, reason in (
        ("reward", "reward model"),
        ("other", "hidden size 16"),
        ("empty", "adapter_config.json: no such file"),
        ("large", r"has rank 16, and serve\.max_lora_rank is 8"),
        ("idle", "has learned nothing"),
        ("broken", "is not finite"),
        ("pickle", r"\(.bin, .pt\) are not read"),
    ):
        with pytest.raises(RefusalError, match=reason) as error:
            ask(folders, str(allowed / name))
        assert error.value.status == 400


@pytest.mark.parametrize("name", ["base", "", "../x", "a b", "a\n", 7, None])
def test_a_name_that_no_adapter_may_have_is_refused(tmp_path: Path, allowed: Path, folders: AdapterFolders, name: Any) -> None:
    adapter = make_adapter(allowed / "v2", str(tmp_path / "base"))
    with pytest.raises(RefusalError, match="lora_name"):
        ask(folders, str(adapter), name)

"""Adapters that are served and that a request may load, and the messages about those of another index than is served."""

import json
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from serve_cases import TRAINED

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.record import AgentRecord, write_record
from drag_ray.engine.models.adapter import read_base_model, write_base_model
from drag_ray.errors import DamageError, ServeError
from drag_ray.evaluate.evaluation_folder import COMPARISON_NAME
from drag_ray.evaluate.report.context import ReportContext
from drag_ray.search.index import read_fingerprint
from drag_ray.search.searcher import Searcher
from drag_ray.serve.adapters.adapter_files import (
    AdapterFolders,
    LoadRequest,
    compute_max_lora_rank,
    describe_other_index,
    read_adapters,
    resolve_adapter_dirs,
    resolve_adapters,
    say_other_origins,
)
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.limits import RefusalError
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity

OTHER = "0123456789abcdef"


def make_base(folder: Path, hidden_size: int) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": hidden_size, "num_hidden_layers": 1}))
    return str(folder)


def make_adapter(
    folder: Path, base: str = "", task_type: str = "CAUSAL_LM", rank: int = 8, value: float = 1.0, name: str = ""
) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "lora_alpha": 16, "task_type": task_type}))
    weight = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    weights = {weight: torch.ones(rank, 8), weight.replace("lora_A", "lora_B"): torch.full((8, rank), value)}
    save_file(weights, folder / "adapter_model.safetensors")
    if base:
        write_base_model(folder, read_base_model(base, name=name))
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
    write_record(adapter, AgentRecord(agent=AgentConfig(), index_fingerprint=OTHER))
    warnings = [ask(replace(folders, index_fingerprint=served), str(adapter)).warning for served in (OTHER, "", "ff")]
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


def test_a_damaged_adapter_of_the_run_is_not_served(tmp_path: Path) -> None:
    with StageFolder(tmp_path / "finetune", Identity("finetune", {}, {})) as folder:
        config = make_adapter(folder.path / "adapter") / "adapter_config.json"
        folder.finish({})
    assert list(resolve_adapters(ServeConfig(), folder.path, "base")) == ["tuned"]
    config.unlink()
    with pytest.raises(DamageError, match=r"adapter_config\.json: is missing.*python jobs/finetune\.py --verify"):
        resolve_adapters(ServeConfig(), folder.path, "base")
    assert list(resolve_adapters(ServeConfig(adapters=("other=/x",)), folder.path, "base")) == ["other"]


def test_the_adapter_of_the_run_is_served_unless_others_are_named(tmp_path: Path) -> None:
    assert resolve_adapters(ServeConfig(), tmp_path, "base") == {}
    trained = make_adapter(tmp_path / "adapter")
    assert resolve_adapters(ServeConfig(), tmp_path, "base") == {"tuned": trained}
    named = ServeConfig(adapters=("a=/x/y", "b=/p=q"))
    assert resolve_adapters(named, tmp_path, "base") == {"a": Path("/x/y"), "b": Path("/p=q")}


def test_a_whole_model_of_the_run_is_served_as_the_model_and_the_base_model_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "model").mkdir()
    assert resolve_adapters(ServeConfig(), tmp_path, "base") == {}
    assert f"serves base as it is, and not the whole model that finetune has trained: --engine.model {tmp_path}" in caplog.text
    assert resolve_adapters(ServeConfig(), tmp_path, str(tmp_path / "model")) == {}
    assert list(resolve_adapters(ServeConfig(adapters=("a=/x",)), tmp_path, "base")) == ["a"]


def test_the_adapter_of_the_run_is_not_added_to_the_model_that_it_was_merged_into(tmp_path: Path) -> None:
    make_adapter(tmp_path / "adapter")
    (tmp_path / "merged").mkdir()
    assert list(resolve_adapters(ServeConfig(), tmp_path, "base")) == ["tuned"]
    assert resolve_adapters(ServeConfig(), tmp_path, str(tmp_path / "merged")) == {}


def test_an_adapter_cannot_have_the_name_of_the_base_model(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="'base' is the name of the base model"):
        resolve_adapters(ServeConfig(adapters=("base=/x",)), tmp_path, "base")


@pytest.mark.parametrize("adapters", [("no-folder",), ("=/x",), ("a=",), ("../a=/x",), ("a=/x", "a=/y")])
def test_adapters_that_are_not_name_and_folder_are_refused(adapters: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"is not name=folder|given twice"):
        ServeConfig(adapters=adapters)


@pytest.mark.parametrize(
    ("ranks", "configured", "rank"), [((), 0, 16), ((8,), 0, 16), ((24, 8), 0, 32), ((8,), 64, 64), ((64,), 0, 64)]
)
def test_the_served_rank_is_the_next_one_that_vllm_knows(tmp_path: Path, ranks: tuple, configured: int, rank: int) -> None:
    adapters = {str(number): make_adapter(tmp_path / str(number), rank=rank) for number, rank in enumerate(ranks)}
    assert compute_max_lora_rank(ServeConfig(max_lora_rank=configured), adapters) == rank


@pytest.mark.parametrize(("rank", "configured", "complaint"), [(64, 16, "an adapter has rank 64"), (600, 0, "up to 512")])
def test_a_rank_that_cannot_be_served_is_refused(tmp_path: Path, rank: int, configured: int, complaint: str) -> None:
    with pytest.raises(ServeError, match=complaint):
        compute_max_lora_rank(ServeConfig(max_lora_rank=configured), {"a": make_adapter(tmp_path / "a", rank=rank)})


def test_an_adapter_of_another_base_model_is_refused_by_name(tmp_path: Path) -> None:
    small, large = make_base(tmp_path / "small", 8), make_base(tmp_path / "large", 16)
    adapter = make_adapter(tmp_path / "adapter", small, name="small-model")
    read_adapters({"mine": adapter}, small, "small-model", AgentConfig())
    with pytest.raises(ServeError, match=r"'mine'.*'small-model' \(hidden size 8.*'large-model' \(hidden size 16"):
        read_adapters({"mine": adapter}, large, "large-model", AgentConfig())


def test_folders_of_adapters_are_resolved_and_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert resolve_adapter_dirs(ServeConfig(adapter_dirs=(tmp_path / "link",))) == (tmp_path / "real",)
    with pytest.raises(ServeError, match=r"serve.adapter_dirs: .*nowhere' is no folder"):
        resolve_adapter_dirs(ServeConfig(adapter_dirs=(tmp_path / "nowhere",)))


def evaluate(folder: Path, fingerprint: str) -> Path:
    context = ReportContext("or", "english", "greedy", (0,), fingerprints={"search index": fingerprint} if fingerprint else {})
    with StageFolder(folder, Identity("evaluate", {}, {})) as stage:
        artifacts.write_json(stage.path / COMPARISON_NAME, {"context": context.to_dict()})
        stage.finish({})
    return folder


def test_what_was_made_with_another_index_is_said_and_nothing_of_the_rest(
    searcher: Searcher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = searcher.record.fingerprint
    assert read_fingerprint(searcher.index_dir) == served
    given = {"old": OTHER, "own": served, "unknown": ""}
    records = {name: TRAINED.model_copy(update={"index_fingerprint": fingerprint}) for name, fingerprint in given.items()}
    with caplog.at_level(logging.WARNING):
        say_other_origins(str(searcher.index_dir), records, evaluate(tmp_path / "own", served))
        say_other_origins(str(searcher.index_dir), {}, evaluate(tmp_path / "earlier", ""))
        say_other_origins("", records, tmp_path / "unread")
    [said] = caplog.messages
    assert said.startswith(f"the adapter 'old' was trained with another index ({OTHER}) than is served ({served})")
    caplog.clear()
    say_other_origins(str(searcher.index_dir), {}, evaluate(tmp_path / "other", OTHER))
    assert caplog.messages[0].startswith(f"{tmp_path / 'other'} evaluated with another index")
    assert describe_other_index(OTHER, "") == ""

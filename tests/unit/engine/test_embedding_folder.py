"""What the folder of an embedding model says, in the ways in which sentence-transformers has written it."""

import json
from pathlib import Path
from typing import Any

import pytest

from drag_ray.engine.encoders.embedding_folder import EmbeddingFolder, read_embedding_folder, resolve_name
from drag_ray.errors import ConfigError

OLD = "sentence_transformers.models."
NEW = "sentence_transformers.sentence_transformer.modules."


def write_folder(folder: Path, files: dict[str, Any]) -> Path:
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def list_modules(*kinds: str, prefix: str = OLD, first: str = "") -> list[dict[str, str]]:
    paths = {"Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    return [{"type": prefix + kind, "path": paths.get(kind, first)} for kind in kinds]


def test_a_folder_of_version_2_is_read(tmp_path: Path) -> None:
    """As of all-MiniLM-L6-v2: a switch for each pooling, and no folder for the module that normalises."""
    switches = {f"pooling_mode_{name}": name == "mean_tokens" for name in ("cls_token", "mean_tokens", "max_tokens")}
    files = {
        "modules.json": list_modules("Transformer", "Pooling", "Normalize"),
        "1_Pooling/config.json": {"word_embedding_dimension": 384, **switches},
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
        "config_sentence_transformers.json": {"__version__": {"sentence_transformers": "2.0.0"}},
    }
    folder = write_folder(tmp_path, files)
    assert read_embedding_folder(str(folder)) == EmbeddingFolder(folder, "mean", normalises=True, max_tokens=256)


def test_a_folder_of_version_6_is_read(tmp_path: Path) -> None:
    """One word for the pooling, other modules, prompts, and the length in the tokenizer's own files."""
    prompts = {"query": "Instruct: find it\nQuery: ", "document": ""}
    files = {
        "modules.json": list_modules("Transformer", "Pooling", prefix=NEW, first="0_Transformer"),
        "1_Pooling/config.json": {"embedding_dimension": 1024, "pooling_mode": "lasttoken", "include_prompt": True},
        "0_Transformer/sentence_bert_config.json": {"transformer_task": "feature-extraction", "do_lower_case": True},
        "config_sentence_transformers.json": {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "dot"},
    }
    folder = write_folder(tmp_path, files)
    assert read_embedding_folder(str(folder)) == EmbeddingFolder(
        folder / "0_Transformer", "lasttoken", normalises=False, lowercases=True, query_prompt=prompts["query"]
    )


@pytest.mark.parametrize(
    ("said", "query", "page"),
    [
        ({"prompts": {"query": "q: ", "passage": "p: "}}, "q: ", "p: "),
        ({"prompts": {"both": "b: ", "other": "o: "}, "default_prompt_name": "both"}, "b: ", "b: "),
        ({"prompts": None}, "", ""),
    ],
)
def test_prompts_go_by_the_names_that_the_library_looks_for(tmp_path: Path, said: dict[str, Any], query: str, page: str) -> None:
    files = {
        "modules.json": list_modules("Transformer", "Pooling"),
        "1_Pooling/config.json": {"pooling_mode": "cls"},
        "config_sentence_transformers.json": said,
    }
    read = read_embedding_folder(str(write_folder(tmp_path, files)))
    assert (read.query_prompt, read.page_prompt, read.normalises) == (query, page, True)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("modules.json", list_modules("Transformer", "Pooling", "Dense"), "made of Transformer, Pooling, Dense; expected"),
        ("modules.json", list_modules("StaticEmbedding"), "made of StaticEmbedding; expected Transformer"),
        ("modules.json", {}, r"modules\.json: Input should be a valid array, got {}"),
        ("modules.json", "{", r"modules\.json: Invalid JSON"),
        ("modules.json", "[" * 100_000, r"modules\.json: Invalid JSON"),
        ("modules.json", [{"type": "Transformer", "path": "../elsewhere"}], r"modules\.json: 0\.path: .*got '\.\./elsewhere'"),
        ("1_Pooling/config.json", {"pooling_mode": [{}]}, r"the pooling is {}; expected one of"),
        ("config_sentence_transformers.json", {"prompts": ["q: "]}, r"transformers\.json: prompts: Input should be an object"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_max_tokens": True},
            "the pooling is pooling_mode_max_tokens; expected one of cls",
        ),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "the pooling is mean, cls; expected one of"),
        ("1_Pooling/config.json", {}, "the pooling is none; expected"),
        ("1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False}, "pools without its prompts"),
        (
            "config_sentence_transformers.json",
            {"similarity_fn_name": "euclidean"},
            "compared by euclidean; expected cosine or dot",
        ),
    ],
)
def test_a_folder_that_asks_for_more_is_refused(tmp_path: Path, name: str, value: Any, message: str) -> None:
    files = {
        "modules.json": list_modules("Transformer", "Pooling"),
        "1_Pooling/config.json": {"pooling_mode": "mean"},
        "config_sentence_transformers.json": {"prompts": {"query": "q: "}},
        name: value,
    }
    with pytest.raises(ConfigError, match=message):
        read_embedding_folder(str(write_folder(tmp_path, files)))


def test_a_model_of_another_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"modules\.json: no such file\. embedding\.model must be a model of sentence-transf"):
        read_embedding_folder(str(write_folder(tmp_path, {"config.json": {"model_type": "bert"}})))


def test_what_is_no_folder_is_a_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in the cache that the Hub's own client keeps, without a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    cached = tmp_path / "models--some--model"
    files = {
        "refs/main": "abc",
        "snapshots/abc/modules.json": list_modules("Transformer", "Pooling"),
        "snapshots/abc/1_Pooling/config.json": {"pooling_mode": "mean"},
    }
    write_folder(cached, files)
    assert read_embedding_folder("some/model").transformer_dir == cached / "snapshots" / "abc"
    with pytest.raises(ConfigError, match=r"embedding\.model 'some/other': no such folder, and no model that"):
        read_embedding_folder("some/other")
    with pytest.raises(ConfigError, match=r"embedding\.model '/no/such/folder': no such folder"):
        read_embedding_folder("/no/such/folder")


def test_a_folder_is_named_so_that_it_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert (resolve_name("model"), resolve_name("some/model")) == (str(tmp_path / "model"), "some/model")

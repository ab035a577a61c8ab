"""Arguments of transformers and PEFT by name: which are refused, and where the others arrive."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from nano_training import make_nano_model
from training_cases import write_job, write_model
from transformers import TrainingArguments
from transformers.trainer_callback import TrainerState

from drag_ray.config import load
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.models.adapter import check_adapter_writes
from drag_ray.engine.models.model_files import read_shapes
from drag_ray.errors import ConfigError, TrainError
from drag_ray.finetune.arguments import build_options
from drag_ray.finetune.config import FinetuneConfig, FinetuneSections, TrainJob
from drag_ray.finetune.named import check_named, check_reporting, explain_refusal
from drag_ray.finetune.outputs.publication import Description, publish_adapter
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.finetune.trainer import _build_adapter, load_to_train, train
from drag_ray.pipeline.run_config import RunConfig


def refuse(match: str, adapter: str = "", **options: Any) -> None:
    sections = FinetuneSections(EngineConfig(model="base", adapter=adapter), FinetuneConfig.model_validate(options))
    with pytest.raises(ConfigError, match=match):
        sections.check()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"arguments": {"learning_rate": 1}}, r"finetune\.arguments: learning_rate is set by finetune\.learning_rate\. Leave"),
        ({"arguments": {"save_total_limit": 1}}, r"save_total_limit is set by finetune\.checkpoint_steps"),
        ({"arguments": {"bf16_full_eval": True}}, r"bf16_full_eval is set by finetune\.dtype"),
        ({"arguments": {"label_smoothing_factor": 0.1}}, r"label_smoothing_factor is set by the stage itself"),
        (
            {"arguments": {"weight_dekay": 0.1}},
            r"transformers, as installed, has no argument 'weight_dekay'\. Did you mean w",
        ),
        ({"min_workers": 1}, r"finetune\.min_workers 1: .* Set finetune\.deepspeed to off"),
        ({"min_workers": 3, "num_workers": 2, "deepspeed": "off"}, r"expected at most num_workers"),
        ({"arguments": {"qq": 0.1}}, r"has no argument 'qq'\.$"),
        ({"lora": {"r": 8}}, r"finetune\.lora: r is set by finetune\.lora_r"),
        ({"lora": {"use_rslra": True}}, r"PEFT, as installed, has no argument 'use_rslra'\. Did you mean use_rslora\?"),
        (
            {"parts": ["language"], "method": "dpo"},
            r"finetune\.parts language: the method dpo trains others\. Take",
        ),
        (
            {"parts": ["vision"], "quantization": "nf4"},
            r"finetune\.quantization: finetune\.parts vision trains own weights of a model",
        ),
        ({"parts": ["language"], "lora": {"use_rslora": True}}, r"finetune\.lora: .*, and no adapter\. Leave one"),
        ({"merge": False, "lora": {"use_dora": True}}, r"finetune\.lora: use_dora True: .* Leave out --no-finetune\.merge"),
        ({"method": "embed", "lora": {"use_rslora": True}}, r"finetune\.lora: .*finetune\.method embed"),
        ({"method": "cross_encoder", "quantization": "int8"}, r"finetune\.quantization: .*finetune\.method cross_encoder"),
        ({"arguments": {"lr_scheduler_kwargs": {"num_cycles": 2}}}, r"lr_scheduler_kwargs says nothing to .* cosine\. Name"),
        ({"parts": ["vision"], "part_learning_rates": {"language": 1}}, r"part_learning_rates: language is not trained"),
        ({"quantization": "int8", "deepspeed": "zero3"}, r"finetune\.quantization: ZeRO-3"),
        ({"parts": ["language"], "adapter": "runs/a"}, r"drag-ray merge runs/a OUT"),
        ({"data": "nowhere/mine.jsonl"}, r"finetune\.data 'nowhere/mine\.jsonl': no such file or folder\. Check"),
    ],
)
def test_what_cannot_be_or_has_an_option_is_refused_before_anything_is_trained(options: dict[str, Any], match: str) -> None:
    refuse(match, **options)


@pytest.mark.parametrize("parts", [[], ["adapter", "language"], ["vision", "vision"], ["head"]])
def test_an_adapter_is_trained_alone_or_parts_are(parts: list[str]) -> None:
    with pytest.raises(ValueError, match="parts"):
        FinetuneConfig.model_validate({"parts": parts})


def build(**options: Any) -> dict[str, Any]:
    rows = Path("rows.jsonl")
    job = TrainJob(FinetuneConfig.model_validate(options), "", rows, rows, (), use_gpu=False, num_workers=1, num_threads=1)
    return build_options(job, "off", "scratch", {"images": 0, "validation_rows": 0}, resumes=False)


def test_of_what_the_stage_sets_only_defaults_can_be_named() -> None:
    free = {"optim", "report_to", "lr_scheduler_type"}
    for name in build().keys() - free:
        with pytest.raises(ConfigError, match="is set by"):
            check_named("arguments", {name: 1})
    named = {"optim": "adafactor", "report_to": "wandb", "lr_scheduler_type": "linear", "weight_decay": 0.1}
    check_named("arguments", named)
    assert build(arguments=named).items() >= named.items()
    assert build(method="embed", arguments=named).items() >= named.items()
    assert build(method="embed")["optim"] == build(parts=["language"])["optim"] == "adamw_torch_fused"


def test_names_and_values_can_stand_on_a_command_line() -> None:
    words = ["--finetune.arguments", "weight_decay=1e-2", "optim=sgd", "--finetune.lora", "use_dora=true", "bias=none"]
    options = load(RunConfig, words).finetune
    assert options.arguments == {"weight_decay": 0.01, "optim": "sgd"}
    assert options.lora == {"use_dora": True, "bias": "none"}
    texts = {"run_name": "007", "project": "1e3", "max_steps": "7", "tf32": "true", "neftune_noise_alpha": "1e+1", "qq": "1"}
    read = {"run_name": "007", "project": "1e3", "max_steps": 7, "tf32": True, "neftune_noise_alpha": 10.0, "qq": "1"}
    assert FinetuneConfig(arguments=texts).arguments == read
    assert FinetuneConfig(lora={"revision": "7", "layers_to_transform": "1"}).lora == {"revision": "7", "layers_to_transform": 1}


def test_records_leave_out_what_says_nothing_to_a_training() -> None:
    whole = FinetuneConfig(parts=("language",)).model_dump()
    assert whole["parts"] == ("language",)
    assert {"lora_r", "lora", "quantization", "merge", "start"} & whole.keys() == set()
    assert {"lora", "parts", "quantization"} & FinetuneConfig(method="embed").model_dump().keys() == set()
    assert FinetuneConfig(method="embed", arguments={"weight_decay": 0.1}).model_dump()["arguments"] == {"weight_decay": 0.1}


def test_a_tracker_that_is_unknown_or_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reporting("none")
    check_reporting([])
    monkeypatch.setattr("transformers.integrations.integration_utils.is_trackio_available", lambda: False)
    with (
        pytest.raises(
            TrainError, match=r"finetune\.arguments \{'report_to': 'trackio'\}: Trackio.*`pip install trackio`\. It is"
        ),
        explain_refusal("arguments", {"report_to": "trackio"}),
    ):
        check_reporting(["trackio"])
    monkeypatch.delenv("KUBEFLOW_TRAINER_SERVER_URL", raising=False)
    with pytest.raises(ImportError, match="KUBEFLOW_TRAINER_SERVER_URL environment variable"):
        check_reporting(["kubeflow"])
    with pytest.raises(ImportError, match="pip install azureml-sdk"):
        check_reporting(["azure_ml"])
    with pytest.raises(ValueError, match=r"elsewhere is not supported, only .*mlflow.*trackio"):
        check_reporting(["elsewhere"])
    with pytest.raises(ValueError, match="of others"), explain_refusal("arguments", {}):
        raise ValueError("of others")


def test_what_peft_refuses_is_an_error_of_the_option() -> None:
    with pytest.raises(TrainError, match=r"finetune\.lora \{'layers_pattern': 'h'\}: When `layers_pattern` is specified"):
        _build_adapter(FinetuneConfig(lora={"layers_pattern": "h"}), has_vision=False)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.mark.seconds
def test_named_arguments_reach_the_trainer_and_peft_and_tell_whom_they_name(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tensorboard"))
    arguments = {"lr_scheduler_type": "linear", "weight_decay": 0.5, "optim": "adafactor", "report_to": "tensorboard"}
    lora = {"use_rslora": True, "use_dora": True}
    job = write_job(tmp_path, model_dir, {"method": "sft", "learning_rate": 1e-2, "arguments": arguments, "lora": lora})
    steps: list[float] = []

    def look(metrics: dict[str, Any], checkpoint_dir: Path) -> None:
        import torch

        used: TrainingArguments = torch.load(checkpoint_dir / "training_args.bin", weights_only=False)
        assert (used.weight_decay, used.optim) == (0.5, "adafactor")
        state = TrainerState.load_from_json(str(checkpoint_dir / "trainer_state.json"))
        steps[:] = [entry["learning_rate"] for entry in state.log_history if "learning_rate" in entry]
        if len(steps) == 4:
            (tmp_path / "stage").mkdir()
            publish_adapter(checkpoint_dir, str(model_dir), Description(job.config, {}, {}, None), None, tmp_path / "stage")

    train(job, tokenize_training_rows(job), look, None)
    assert steps == pytest.approx([1e-2, 0.75e-2, 0.5e-2, 0.25e-2])
    assert list((tmp_path / "tensorboard").iterdir())
    assert (tmp_path / "stage" / "merged" / "model.safetensors").exists()
    with pytest.raises(TrainError, match=r"cannot use all of this adapter: use_dora True.*give the merged model"):
        check_adapter_writes(tmp_path / "stage" / "adapter")


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("options", "missing", "match"),
    [
        ({"quantization": "nf4"}, "bitsandbytes", r"finetune\.quantization nf4: .*On every node: pip install bitsandbytes$"),
        (
            {"arguments": {"optim": "adamw_8bit"}},
            "bitsandbytes",
            r"arguments .*adamw_8bit.*pip install -U bitsandbytes",
        ),
        ({"arguments": {"optim": "adamv"}}, "", r"finetune\.arguments .*adamv is not a valid OptimizerNames"),
    ],
)
def test_a_package_that_is_missing_is_named_and_training_is_not_tried_again(
    options: dict[str, Any], missing: str, match: str, model_dir: Path, tmp_path: Path
) -> None:
    if missing and missing in sys.modules:
        pytest.skip("it is installed")
    job = write_job(tmp_path, model_dir, {"method": "sft", **options})
    with pytest.raises(TrainError, match=match):
        train(job, tokenize_training_rows(job), lambda *_: None, None)


@pytest.mark.seconds
@pytest.mark.parametrize("method", ["sft", "dpo", "reward"])
@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_an_adapter_of_a_quantised_model_is_merged_into_the_model_as_it_is(
    quantization: str, method: str, tmp_path: Path
) -> None:
    """Needs bitsandbytes, which works on CPUs too."""
    pytest.importorskip("bitsandbytes")
    model_dir = make_nano_model(tmp_path / "base", hidden_size=64)  # its kernels want multiples of 32
    options = {"method": method, "quantization": quantization, "learning_rate": 1e-2, "checkpoint_steps": 2}
    job = write_job(tmp_path, model_dir, options)
    loaded = load_to_train(job)[0]
    types = {type(module).__name__ for name, module in loaded.named_modules() if name.endswith("q_proj")}
    assert types == {"Linear4bit" if quantization == "nf4" else "Linear8bitLt"}

    def keep(metrics: dict[str, Any], checkpoint_dir: Path) -> None:
        shutil.copytree(checkpoint_dir, tmp_path / "last", dirs_exist_ok=True)

    train(job, tokenize_training_rows(job), keep, None)
    (tmp_path / "stage").mkdir()
    publish_adapter(tmp_path / "last", str(model_dir), Description(job.config, {}, {}, None), None, tmp_path / "stage")
    merged = read_shapes(tmp_path / "stage" / "merged" / "model.safetensors")
    base = read_shapes(model_dir / "model.safetensors")
    assert {name: merged[name] for name in base if name in merged and "q_proj" in name}.items() <= base.items()
    assert sum("q_proj" in name for name in merged) == 2

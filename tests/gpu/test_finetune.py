"""The finetune stage on GPUs: an adapter of each kind, and all weights, in one process and with DeepSpeed in two."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from nano_training import make_config, make_nano_model, write_rows
from transformers import AutoModelForCausalLM

from drag_ray.cluster.connection import ClusterConfig, connect
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]

ALL_WEIGHTS = {"parts": ("language",), "learning_rate": 2e-3}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_nano_model(tmp_path_factory.mktemp("nano"), hidden_size=128)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Generator[None]:
    with connect(ClusterConfig()):
        yield


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="adapter"),
        pytest.param({"quantization": "nf4"}, id="nf4"),
        pytest.param({"quantization": "int8"}, id="int8"),
        pytest.param({"lora": {"use_dora": True, "use_rslora": True}}, id="dora"),
        pytest.param({"liger": True}, id="liger"),
        pytest.param(ALL_WEIGHTS, id="all"),
        pytest.param({"deepspeed": "zero2", "num_workers": 2}, id="adapter-zero2"),
        pytest.param({"deepspeed": "zero3", "num_workers": 2}, id="adapter-zero3"),
        pytest.param({"deepspeed": "zero2", "num_workers": 2, **ALL_WEIGHTS}, id="all-zero2"),
        pytest.param({"deepspeed": "zero3", "num_workers": 2, **ALL_WEIGHTS}, id="all-zero3"),
    ],
)
def test_it_learns_and_publishes_a_model_that_has_learned(
    options: dict[str, Any], dtype: str, model_dir: Path, tmp_path: Path
) -> None:
    if options.get("num_workers", 1) > torch.cuda.device_count():
        pytest.skip("needs two GPUs")
    if "quantization" in options:
        pytest.importorskip("bitsandbytes")
    if "liger" in options:
        pytest.importorskip("liger_kernel")
    write_rows(tmp_path, 80)
    config = make_config(tmp_path, model_dir, **{"device": "gpu", "dtype": dtype, "batch_size": 4, "epochs": 2, **options})
    with StageFolder(tmp_path / "finetune", Identity("finetune", {}, {})) as folder:
        counts = run_code(STAGES["finetune"], config, folder)
    assert counts["eval_loss_after"] < counts["eval_loss_before"] - 2
    name = "model" if "parts" in options else "merged"
    published: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "finetune" / name, dtype="float32")
    base: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype="float32")
    changed = [name for name, weight in published.named_parameters() if not torch.equal(weight, base.get_parameter(name))]
    learned = [name for name, _ in base.named_parameters()]
    assert set(changed) >= {weight for weight in learned if "parts" in options or "_proj" in weight}
    assert all(weight.isfinite().all() for weight in published.parameters())

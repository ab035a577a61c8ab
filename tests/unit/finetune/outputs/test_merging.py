"""`drag-ray merge`: an adapter becomes part of its base model's weights."""

import json
from pathlib import Path

import peft
import pytest
import torch
from training_cases import write_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from drag_ray.cli.main import main

pytestmark = pytest.mark.seconds


@pytest.fixture
def base_dir(tmp_path: Path) -> Path:
    return write_model(tmp_path / "base")


@pytest.fixture
def adapter_dir(base_dir: Path, tmp_path: Path) -> Path:
    """One that PEFT has written, of the kind that is not served as an adapter."""
    config = peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False, use_dora=True, task_type="CAUSAL_LM")
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base_dir), config).save_pretrained(str(tmp_path / "adapter"))
    return tmp_path / "adapter"


def test_a_merged_model_writes_as_base_and_adapter_do(
    base_dir: Path, adapter_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "merged"
    assert main(["merge", str(adapter_dir), str(out), "--dtype", "float32"]) == 0
    assert capsys.readouterr().out == f"merged: {out}\n"
    base = AutoModelForCausalLM.from_pretrained(base_dir)
    token_ids = torch.arange(9)[None]
    expected = peft.PeftModel.from_pretrained(base, str(adapter_dir)).eval()(token_ids).logits
    torch.testing.assert_close(AutoModelForCausalLM.from_pretrained(out)(token_ids).logits, expected, atol=1e-5, rtol=1e-4)
    assert AutoTokenizer.from_pretrained(out).chat_template == AutoTokenizer.from_pretrained(base_dir).chat_template


def test_what_is_there_is_kept_and_a_base_that_is_not_said_is_asked_for(
    base_dir: Path, adapter_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["merge", str(adapter_dir), str(base_dir)]) == 2
    assert f"{base_dir}: is there already. Name a folder that is not" in capsys.readouterr().err
    config_path = adapter_dir / "adapter_config.json"
    config_path.write_text(json.dumps(json.loads(config_path.read_text()) | {"base_model_name_or_path": None}))
    assert main(["merge", str(adapter_dir), str(tmp_path / "out")]) == 1
    assert "does not say which model it was trained on. Name it: --model BASE" in capsys.readouterr().err
    assert main(["merge", str(adapter_dir), str(tmp_path / "out"), "--model", str(base_dir)]) == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"

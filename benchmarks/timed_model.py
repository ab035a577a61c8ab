"""A model whose steps take a set time and no GPU: what is left of an engine is vLLM's scheduler and Python."""

import json
import os
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, LogprobsLists, ModelRunnerOutput

_FIRST_TOKEN = 1000
"""ids below it are special tokens in some tokenizers"""
_VARIABLE = "DRAG_RAY_TIMED_MODEL"


def build_options(step_ms: float, token_us: float) -> dict[str, Any]:
    """Engine options for a model whose step takes `step_ms`, and `token_us` more for each token that it draws."""
    return {
        "distributed_executor_backend": f"{TimedExecutor.__module__}.{TimedExecutor.__name__}",
        "additional_config": {"step_s": step_ms / 1e3, "token_s": token_us / 1e6},
        "enforce_eager": True,
    }


def make_plugin(folder: Path, step_ms: float, token_us: float) -> dict[str, str]:
    """Environment variables with which vLLM has this model in whichever program, by a plugin that is written to a folder."""
    metadata = folder / "timed_model-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: timed_model\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[vllm.general_plugins]\ntimed_model = {__name__}:install\n")
    paths = [str(folder), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), _VARIABLE: json.dumps(build_options(step_ms, token_us))}


def install() -> None:
    """Install the plugin; vLLM calls this in each of its processes: engines are made with the options of `make_plugin`."""
    from vllm.engine.arg_utils import EngineArgs

    options, create = json.loads(os.environ[_VARIABLE]), EngineArgs.create_engine_config

    def create_with_options(self: Any, *arguments: Any, **named: Any) -> Any:
        for name, value in options.items():
            setattr(self, name, value)
        return create(self, *arguments, **named)

    EngineArgs.create_engine_config = create_with_options


class TimedExecutor(UniProcExecutor):
    """vLLM's executor, which loads the model and then answers each step with arbitrary tokens when its time is over.

    The time of a step begins when the one before it ends, as on a GPU, which the next step waits for.
    """

    def _init_executor(self) -> None:
        super()._init_executor()
        self._ends, self._num_drawn = 0.0, 0

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        output = self._draw(list(scheduler_output.num_scheduled_tokens))
        if not non_block:
            return output
        future: Future[ModelRunnerOutput] = Future()
        future.set_result(output)
        return future

    def _draw(self, request_ids: list[str]) -> ModelRunnerOutput:
        """A token for each request: the options of engines on CPUs leave no prompt in parts."""
        if not request_ids:
            return EMPTY_MODEL_RUNNER_OUTPUT
        time.sleep(max(0.0, self._ends - time.perf_counter()))
        cost = self.vllm_config.additional_config
        assert isinstance(cost, dict)  # as `build_options` gave it
        self._ends = time.perf_counter() + cost["step_s"] + cost["token_s"] * len(request_ids)
        numbers = np.arange(self._num_drawn, self._num_drawn + len(request_ids))
        self._num_drawn += len(request_ids)
        tokens = (_FIRST_TOKEN + numbers * 7919 % (self.model_config.get_vocab_size() - _FIRST_TOKEN)).astype(np.int32)
        logprobs = np.full((len(tokens), 1), -0.5, dtype=np.float32)
        return ModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={request_id: number for number, request_id in enumerate(request_ids)},
            sampled_token_ids=[[token] for token in tokens.tolist()],
            logprobs=LogprobsLists(tokens[:, None], logprobs, np.ones(len(tokens), dtype=np.int32)),
            prompt_logprobs_dict={},
            pooler_output=[],
        )

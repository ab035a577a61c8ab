"""The learning curve: its points, and the callback that prints them and reports checkpoints while the trainer runs."""

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from drag_ray.cluster.metrics import StageRecorder

_logger = logging.getLogger(__name__)

ReportFn = Callable[[dict[str, Any], Path], object]
"""Takes metrics and the folder of the checkpoint that has them. Every training process calls it equally often."""

_RENAMED = {
    "num_input_tokens_seen": "tokens",
    "rewards/accuracies": "pair_accuracy",
    "eval_rewards/accuracies": "eval_pair_accuracy",
    "accuracy": "pair_accuracy",
    "eval_accuracy": "eval_pair_accuracy",
}
_KEYS = (
    *("step", "epoch", "loss", "eval_loss", "pair_accuracy", "eval_pair_accuracy", "kl", "eval_kl", "clipped"),
    *("learning_rate", "grad_norm", "tokens", "seconds"),
)


def build_curve(log_history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points of a curve, from the trainer's log: one per step (`loss`) and one per evaluation (`eval_loss`).

    `tokens` counts the tokens read so far by all processes, padding aside; `seconds` the time since the start, without the time
    between a failure and the next start. Of preference pairs, `pair_accuracy` and `eval_pair_accuracy` are the share in which the
    chosen reply has become likelier than the rejected one, each against the policy at the start; a reward model's are the share
    in which the better reply has the higher reward. In reinforcement learning `kl` and `eval_kl` are how far the policy has come
    from that one, in nats a token, and `clipped` is the share of tokens that were too far from it to be pushed further.
    """
    return [_to_point(entry) for entry in log_history if "loss" in entry or "eval_loss" in entry]


def _to_point(entry: dict[str, Any]) -> dict[str, Any]:
    renamed = {_RENAMED.get(key, key): value for key, value in entry.items()}
    return {key: renamed[key] for key in _KEYS if key in renamed}


class ReportCallback(TrainerCallback):
    """Reports each checkpoint with the latest point, and prints a line a point with the time that is left.

    Points are not reported by themselves: Ray Train takes one report every two seconds and lets training wait meanwhile.
    A checkpoint is removed from the scratch folder as soon as it has been reported.
    """

    def __init__(self, report: ReportFn, counts: dict[str, int], recorder: StageRecorder) -> None:
        self._report = report
        self._recorder = recorder
        self._counts = counts
        self._started = 0.0
        self._first_step_began = 0.0
        self._seconds_before = 0.0
        self._first_step = 0
        self._last_metrics: dict[str, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock where the last run stopped it."""
        self._started = time.monotonic()
        self._first_step = state.global_step
        self._seconds_before = state.log_history[-1].get("seconds", 0.0) if state.log_history else 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Time the steps from the first of them: the evaluation before it says nothing of how long the others take."""
        if state.global_step == self._first_step:
            self._first_step_began = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Complete the newest log entry and print it."""
        entry = state.log_history[-1]
        if "loss" not in entry and "eval_loss" not in entry:
            return
        entry["seconds"] = round(self._seconds_before + time.monotonic() - self._started, 2)
        self._last_metrics = {**_to_point(entry), **self._counts}
        if state.is_world_process_zero:
            self._recorder.set_progress("steps", state.global_step, state.max_steps)
            self._recorder.set_point(_to_point(entry))
            _logger.info(self._describe(entry, state))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Hand over the checkpoint that was just written."""
        checkpoint_dir = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self._report(self._last_metrics, checkpoint_dir)
        shutil.rmtree(checkpoint_dir, ignore_errors=True)

    def _describe(self, entry: dict[str, Any], state: Any) -> str:
        point = _to_point(entry)
        if "eval_loss" in point:
            accuracy = f", {point['eval_pair_accuracy']:.0%} of pairs right" if "eval_pair_accuracy" in point else ""
            return f"finetune step {state.global_step}/{state.max_steps}: eval_loss {point['eval_loss']:.4f}{accuracy}"
        divergence = f"kl {point['kl']:.4f}, " if "kl" in point else ""
        steps_done = state.global_step - self._first_step
        left_s = (time.monotonic() - self._first_step_began) / max(steps_done, 1) * (state.max_steps - state.global_step)
        return (
            f"finetune step {state.global_step}/{state.max_steps}: loss {entry['loss']:.4f}, {divergence}"
            f"{entry.get('num_input_tokens_seen', 0)} tokens, {int(left_s // 60)}:{int(left_s % 60):02d} left"
        )

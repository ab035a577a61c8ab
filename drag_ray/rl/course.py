"""The course of a run of reinforcement learning: steps of questions, rollouts and training, noted so that any kill loses nothing.

It knows nothing of Ray: it is given what rolls questions out and what waits for a policy.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from drag_ray.agent.task import compute_seed
from drag_ray.cluster.metrics import open_stage_recorder
from drag_ray.errors import TrainError
from drag_ray.finetune.training_folder import CURVE_NAME
from drag_ray.format.split import TRAIN, VALIDATION
from drag_ray.rl.batches import build_batch, compare_engines, describe, find_engines, score
from drag_ray.rl.config import RlSections
from drag_ray.rl.learning import FIGURES_NAME, ROWS_NAME, drop_policies, list_policies, locate_policy, locate_step, read_figures
from drag_ray.rl.ledger import LEDGER_NAME, StepLedger, draw_next
from drag_ray.rl.limits import find_breach
from drag_ray.storage.artifacts import write_bytes, write_json, write_jsonl
from drag_ray.types import Question

_logger = logging.getLogger(__name__)

VALIDATION_DIR_NAME = "validation"
_GREEDY = "greedy"


class Draw(NamedTuple):
    """Questions to roll out, as `build_plan` takes them, and what the log calls them."""

    questions: Sequence[Question]
    preset: str
    num_samples: int
    seed: int
    label: str


RollOut = Callable[[Path, Path, Draw], list[Path]]
"""Rolls out in a folder with the policy in another, and gives the files; what is there already is not rolled out again."""


class Course:
    """The steps of a run.

    Args:
        stage_dir: of the stage.
        sections: its options.
        sides: the questions to train on and to validate on, by side.
        roll_out: see `RollOut`.
        wait_for: returns when the policy of a step is there; raises why it will not be.
        yield_gpu: has engines free the GPU before the trainer begins; None where both have their own.
    """

    def __init__(
        self,
        stage_dir: Path,
        sections: RlSections,
        sides: dict[str, list[Question]],
        roll_out: RollOut,
        wait_for: Callable[[int], None],
        yield_gpu: Callable[[], object] | None = None,
    ) -> None:
        self._stage_dir = stage_dir
        self._sections, self._settings = sections, sections.rl
        self._questions = {question.id: question for question in sides[TRAIN]}
        self._validation = sides[VALIDATION]
        self._roll_out, self._wait_for, self._yield_gpu = roll_out, wait_for, yield_gpu
        self._ledger = StepLedger(stage_dir / LEDGER_NAME)
        self._recorder = open_stage_recorder(stage_dir)
        self._settled_at = time.monotonic()

    def run(self) -> None:
        """Take all steps that have not been taken. Raises TrainError where a limit was passed."""
        num_steps, max_lag = self._settings.steps, self._settings.max_lag
        trained = self._ledger.read_figures("trained")
        num_settled = len(trained)
        if num_settled:
            self._check_limits(num_settled)
        is_sampled = (locate_step(self._stage_dir, num_settled + 1) / ROWS_NAME).exists()
        self._wait_for(num_settled + is_sampled)  # a trainer that is at it has the GPU
        self._validate(num_settled)
        for step in range(num_settled + 1, num_steps + 1):
            self._begin(step)
            self._sample(step)
            last = num_steps if step == num_steps else step - max_lag  # training of later ones may still go on
            for earlier in range(num_settled + 1, last + 1):
                self._settle(earlier)
                num_settled = earlier

    def _begin(self, step: int) -> None:
        """Draw the questions of a step, and note the newest policy, which is not too old, as what rolls them out."""
        if self._ledger.find_policy(step) is None:
            self._wait_for(max(0, step - 1 - self._settings.max_lag))
            self._draw(step, list_policies(self._stage_dir)[-1], self._settings.questions_per_step)

    def _draw(self, step: int, policy: int, number: int) -> bool:
        """Draw questions for a step, none twice; False where there are no others."""
        taken = self._ledger.find_questions(step)
        drawn, place = draw_next(list(self._questions), self._sections.seed, self._ledger.next_place, number, taken)
        if drawn:
            self._ledger.add({"event": "drawn", "step": step, "policy": policy, "questions": drawn, "next_place": place})
        return bool(drawn)

    def _sample(self, step: int) -> None:
        """Roll out a step, with other questions for those that teach nothing, and hand its rows to the trainer."""
        folder, policy = locate_step(self._stage_dir, step), self._ledger.find_policy(step)
        if (folder / ROWS_NAME).exists():
            return
        assert policy is not None, "a step is begun before it is rolled out"
        folder.mkdir(parents=True, exist_ok=True)
        settings, began = self._settings, time.monotonic()
        seed = compute_seed(self._sections.seed, f"step {step}")
        while True:
            names = self._ledger.find_questions(step)
            asked = [self._questions[name] for name in names]
            draw = Draw(asked, settings.preset, settings.samples_per_question, seed, f"rl step {step}")
            paths = self._roll_out(folder, locate_policy(self._stage_dir, policy), draw)
            batch = build_batch(score(paths, self._sections.process), self._sections.rows)
            missing = settings.questions_per_step - len(batch.learned)
            is_full = missing <= 0 or self._ledger.count_draws(step) > settings.refills
            if is_full or not self._draw(step, policy, missing):
                break
        figures = {"lag": step - 1 - policy, "questions": len(names), "learned": len(batch.learned)}
        seconds = {"rollout_seconds": round(time.monotonic() - began, 2)}
        write_json(folder / FIGURES_NAME, batch.figures | figures | seconds | {"engines": find_engines(paths)})
        if self._yield_gpu:
            self._yield_gpu()
        write_bytes(folder / ROWS_NAME, batch.lines)

    def _settle(self, step: int) -> None:
        """Wait until a step is trained, note what it came to, look at the limits, and validate where it is time."""
        self._wait_for(step)
        of_rollouts, of_training = (read_figures(locate(self._stage_dir, step)) for locate in (locate_step, locate_policy))
        compared = compare_engines(of_training.pop("engine_gaps", ()), of_rollouts.pop("engines"))
        now = time.monotonic()
        figures = of_rollouts | of_training | compared | {"step_seconds": round(now - self._settled_at, 2)}
        self._settled_at = now
        self._ledger.add({"event": "trained", "step": step, "figures": figures})
        self._write_curve()
        self._recorder.set_progress("steps", step, self._settings.steps)
        self._recorder.set_point({name: value for name, value in figures.items() if isinstance(value, int | float)})
        said = ", ".join(f"{name} {figures[name]:.3g}" for name in ("reward", "kl", "entropy", "loss") if name in figures)
        groups = f"{figures['learned']} of {figures['questions']} questions differ"
        _logger.info(f"rl step {step}/{self._settings.steps}: {said}, {groups}")
        self._check_limits(step)
        self._validate(step)
        oldest = max(0, step - self._settings.max_lag)  # that the next step may be rolled out with
        drop_policies(self._stage_dir, {self._choose_best(), *range(oldest, self._settings.steps + 1)})

    def _check_limits(self, step: int) -> None:
        trained, validated = (self._ledger.read_figures(event) for event in ("trained", "validated"))
        if breach := find_breach(step, trained, validated, self._settings):
            raise TrainError(breach)

    def _validate(self, step: int) -> None:
        """Ask a policy what is held out, where that is due and has not been done."""
        every, is_last = self._settings.validation_steps, step == self._settings.steps
        is_due = bool(self._validation and every) and (is_last or step % every == 0)
        if not is_due or step in self._ledger.read_figures("validated"):
            return
        folder = self._stage_dir / VALIDATION_DIR_NAME / f"{step:05}"
        folder.mkdir(parents=True, exist_ok=True)
        draw = Draw(self._validation, _GREEDY, 1, self._sections.seed, f"rl validation {step}")
        paths = self._roll_out(folder, locate_policy(self._stage_dir, step), draw)
        figures = describe(score(paths, self._sections.process))
        self._ledger.add({"event": "validated", "step": step, "figures": figures})
        self._write_curve()
        self._recorder.set_point({"eval_reward": figures["reward"]})
        _logger.info(f"rl step {step}/{self._settings.steps}: reward {figures['reward']:.3g} in validation")
        if step:
            self._check_limits(step)

    def _choose_best(self) -> int:
        """The step to publish: the best in validation after the start, the first of equals; the last without a number of any."""
        rewards = {step: figures["reward"] for step, figures in self._ledger.read_figures("validated").items()}
        after_start = [step for step in sorted(rewards) if step and math.isfinite(rewards[step])]  # nothing is above NaN
        return max(after_start, key=rewards.__getitem__, default=len(self._ledger.read_figures("trained")))

    def _write_curve(self) -> None:
        trained, validated = (self._ledger.read_figures(event) for event in ("trained", "validated"))
        points = [{"step": step, **figures} for step, figures in trained.items()]
        points += [
            {"step": step, **{f"eval_{name}": value for name, value in figures.items()}} for step, figures in validated.items()
        ]
        write_jsonl(self._stage_dir / CURVE_NAME, sorted(points, key=lambda point: point["step"]))

    def summarise(self) -> dict[str, Any]:
        """The counts of the stage."""
        trained, validated = (self._ledger.read_figures(event) for event in ("trained", "validated"))
        best, rewards = self._choose_best(), {step: figures["reward"] for step, figures in validated.items()}
        if rewards and rewards[best] <= rewards[0]:
            _logger.warning(
                f"rl: no policy is better in validation than the start ({rewards[0]:.4g}); that of step {best} is published "
                f"({rewards[best]:.4g})"
            )
        return {
            "steps": len(trained),
            "questions": self._ledger.num_drawn,
            "rollouts": sum(figures["rollouts"] for figures in trained.values()),
            "learned_questions": sum(figures["learned"] for figures in trained.values()),
            "first_reward": trained[1]["reward"],
            "last_reward": trained[len(trained)]["reward"],
            "eval_reward_before": rewards.get(0),
            "eval_reward_after": rewards.get(best),
            "published_step": best,
        }

"""A run from Python: its stages, and what they have left. The command line does the same through this class."""

from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from drag_ray.api.run_exchange import RunExchange
from drag_ray.api.run_folder import OF_THE_RUN, PIPELINE, find_stage, list_sections
from drag_ray.config import build, override
from drag_ray.extras import explain_missing
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import open_inputs, pull_inputs, run_stages
from drag_ray.pipeline.stages import SERVE
from drag_ray.serve.config import ServeSections
from drag_ray.storage.artifacts import Manifest

if TYPE_CHECKING:
    from drag_ray.engine.encoders.reward_model import RewardModel


def open_run(run_dir: str | Path, config: str | Path | None = None, **options: Any) -> "Run":
    """A run, new or begun. Nothing is written before a stage runs.

    Args:
        run_dir: its folder.
        config: a TOML file with options, as `--config` of the command line.
        options: above those of the file, with a mapping for each section: `seed=1, agent={"top_k": 5}`.

    Raises:
        ConfigError: an option is unknown or wrong, or the file cannot be read.

    Examples:
        >>> run = drag_ray.open_run("runs/small", config="jobs/configs/small.toml", cluster={"num_cpus": 2})
        >>> run.config.agent.max_iterations
        3
    """
    return Run(build(RunConfig, {"run_dir": run_dir, **options}, Path(config) if config else None))


@explain_missing()
def load_reward_model(folder: str | Path) -> "RewardModel":
    """A model that `finetune` has trained with the method `reward`: `score(messages, replies)` gives a number for each reply.

    Args:
        folder: of the whole model, as `runs/mine/finetune/merged`.

    Raises:
        TrainError: there is no reward model.

    Examples:
        >>> drag_ray.load_reward_model("runs/small/finetune/merged")
        Traceback (most recent call last):
        drag_ray.errors.TrainError: runs/small/finetune/merged: no reward model. Run: python jobs/finetune.py ...
    """
    from drag_ray.engine.encoders.reward_model import RewardModel

    return RewardModel(Path(folder))


class Run(RunExchange):
    """A run: its stages are run or skipped, and what they left is read.

    A stage that is unchanged is skipped, one that was interrupted goes on, as on the command line. Options that several stages
    depend on belong into `open_run`; those that a method is given hold for this call. Ray starts when a stage first has work, and
    ends with `close` or the `with` block; one that the program has started itself is used and left alone. What reads a stage
    takes the `name` of its instance, where the run has several, and its `scope`: where in the run it is, as `rounds/2`.

    Args:
        config: the options of all stages.

    Examples:
        >>> with drag_ray.open_run("runs/small", config="jobs/configs/small.toml") as run:
        ...     run.read_questions().is_empty()
        False
    """

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect from the Ray that this run has started, if it has.

        Examples:
            >>> run.close()
        """
        self._stack.close()

    def index(self, **options: Any) -> Manifest:
        """Read documents and questions and build the search index.

        Args:
            options: of the stage `index`, with a mapping for each section, for this call.

        Returns:
            The record of the finished stage, with the counts of its summary line.

        Raises:
            DragRayError: what the same command would say.

        Examples:
            >>> run.index().counts["pages"]
            150
        """
        return self.run_stage("index", **options)

    def questions(self, **options: Any) -> Manifest:
        """Have a model write questions from the pages of the index, which has none; otherwise as `index`.

        Examples:
            >>> run.questions(questions={"limits": 500})
            Traceback (most recent call last):
            drag_ray.errors.ConfigError: options: unknown key 'questions.limits'. Did you mean 'limit'? Allowed here: ...
        """
        return self.run_stage("questions", **options)

    def tune(self, **options: Any) -> Manifest:
        """Choose how pages are searched, by training questions, before anything is trained; otherwise as `index`.

        Examples:
            >>> run.tune(tune={"limits": 500})
            Traceback (most recent call last):
            drag_ray.errors.ConfigError: options: unknown key 'tune.limits'. Did you mean 'limit'? Allowed here: ...
        """
        return self.run_stage("tune", **options)

    def collect(self, **options: Any) -> Manifest:
        """Roll out the training questions and keep the trajectories; otherwise as `index`.

        Examples:
            >>> run.collect().stage
            'collect'
        """
        return self.run_stage("collect", **options)

    def process(self, **options: Any) -> Manifest:
        """Score the searches of the trajectories; otherwise as `index`.

        Examples:
            >>> run.process().stage
            'process'
        """
        return self.run_stage("process", **options)

    def format(self, **options: Any) -> Manifest:
        """Write training rows from the scored searches; otherwise as `index`.

        Examples:
            >>> run.format().stage
            'format'
        """
        return self.run_stage("format", **options)

    def finetune(self, **options: Any) -> Manifest:
        """Train a LoRA adapter on the training rows; otherwise as `index`. A second one beside it has a name:
        `run.finetune(name="dpo", finetune={"method": "dpo"})`.

        Examples:
            >>> run.finetune().stage
            'finetune'
        """
        return self.run_stage("finetune", **options)

    def rl(self, **options: Any) -> Manifest:
        """Train the policy by reinforcement learning while it collects; otherwise as `index`.

        Examples:
            >>> run.rl(rl={"step": 50})
            Traceback (most recent call last):
            drag_ray.errors.ConfigError: options: unknown key 'rl.step'. Did you mean 'steps'? Allowed here: ...
        """
        return self.run_stage("rl", **options)

    def embed(self, **options: Any) -> Manifest:
        """Embed the pages of the index again, with a model that was trained or another one; otherwise as `index`.

        Examples:
            >>> run.embed(embedding={"modle": "embedded-minilm"})
            Traceback (most recent call last):
            drag_ray.errors.ConfigError: options: unknown key 'embedding.modle'. Did you mean 'model'? Allowed here: ...
        """
        return self.run_stage("embed", **options)

    def evaluate(self, **options: Any) -> Manifest:
        """Compare the base model, the adapter and the baselines on held-out questions; otherwise as `index`.

        Examples:
            >>> run.evaluate().stage
            'evaluate'
        """
        return self.run_stage("evaluate", **options)

    @explain_missing()
    def run_stage(self, stage: str, /, **options: Any) -> Manifest:
        """The stage of this name, as the method of this name runs it.

        Examples:
            >>> run.run_stage("process").counts == run.process().counts
            True
        """
        found, config = find_stage(stage), self._override(stage, options)
        (manifest,) = run_stages([found], config, cache(self._start_ray)).values()
        return manifest

    @explain_missing()
    def pipeline(self, **options: Any) -> dict[str, Manifest]:
        """All stages in order, and in rounds where `rounds` says so; the engines are kept between them.

        Args:
            options: of all stages, with a mapping for each section, for this call.

        Returns:
            The record of each stage by its address in the run.

        Raises:
            DragRayError: what the same command would say.

        Examples:
            >>> list(run.pipeline())
            ['index', 'collect', 'process', 'format', 'finetune', 'evaluate']
        """
        config = self._override(PIPELINE, options)
        with ExitStack() as engines:

            @cache
            def start_ray() -> None:
                self._start_ray()
                if config.rollout.keep_engines:
                    from drag_ray.rollout.engine_pool import keep_engines

                    engines.enter_context(keep_engines())
                    start_engines_early(config)

            from drag_ray.pipeline.rounds import run_pass, run_rounds, start_engines_early
            from drag_ray.pipeline.tuning import tune_search

            tuned, finished = tune_search(config, start_ray) if config.tune_search else (config, {})
            return finished | (run_rounds if tuned.rounds else run_pass)(tuned, start_ray)

    @explain_missing("serve")
    def serve(self, **options: Any) -> None:
        """Serve the base model and its adapters, and search with them, until it is interrupted; otherwise as `index`.

        Examples:
            >>> run.serve(serve={"prot": 8001})
            Traceback (most recent call last):
            drag_ray.errors.ConfigError: options: unknown key 'serve.prot'. Did you mean 'port'? Allowed here: ...
        """
        from drag_ray.serve import stage

        config = self._override(SERVE.name, options)
        pull_inputs(SERVE, config)
        stage.run(config.take(ServeSections), open_inputs(SERVE, config), start_ray=self._start_ray)

    def _override(self, command: str, options: dict[str, Any]) -> RunConfig:
        return override(self.config, options, sections=[name for name in list_sections(command) if name not in OF_THE_RUN])

    def _start_ray(self) -> None:
        from drag_ray.cluster.connection import connect, is_connected

        if not is_connected():
            self._stack.enter_context(connect(self.config.cluster))

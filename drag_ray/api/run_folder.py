"""The folder of a run: where its stages are, what they have left, and the options that each command takes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from drag_ray.config import override
from drag_ray.errors import ConfigError
from drag_ray.extras import explain_missing
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import find_own, open_inputs
from drag_ray.pipeline.stages import SERVE, STAGES, Stage
from drag_ray.stage_runs.damage import refuse_damage
from drag_ray.storage.artifacts import read_manifest, require_manifest

if TYPE_CHECKING:
    import polars as pl

    from drag_ray.api.agent import Agent
    from drag_ray.api.report import Report
    from drag_ray.pipeline.status import StageStatus
    from drag_ray.search.searcher import Searcher

PIPELINE = "pipeline"
OF_THE_RUN = ("run_dir", "cluster", "storage")
"""Options of the run itself, which no single call changes."""
_OF_EVERY_STAGE = (*OF_THE_RUN, "scope", "reads", "verify")


def list_sections(command: str) -> tuple[str, ...]:
    """The options and sections that a stage, or the pipeline, depends on, with those of the run itself.

    Raises:
        ConfigError: there is no such stage.
    """
    if command == PIPELINE:
        return tuple(name for name in RunConfig.model_fields if name != "name")
    if command == SERVE.name:
        return (*_OF_EVERY_STAGE, *SERVE.sections.list_names())
    return (*_OF_EVERY_STAGE, "name", "cost", *find_stage(command).sections.list_names())


def find_stage(name: str) -> Stage:
    """The stage of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in STAGES:
        raise ConfigError(f"no stage {name!r}, expected one of {', '.join(STAGES)}.")
    return STAGES[name]


_ASKED = "_asked"
"""In the run's folder: what an endpoint's replies to an open agent have cost"""


class RunFolder:
    """The outputs of a run's stages.

    Args:
        config: the options of the run; its folder is among them.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.config.run_dir

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def locate(self, stage: str, name: str = "", scope: str = "") -> Path:
        """The folder of a stage, whether it has begun or not.

        Args:
            stage: its name, as `finetune`.

        Raises:
            ConfigError: there is no such stage, or the run has it both with and without a name.

        Examples:
            >>> run.locate("finetune").as_posix()
            'runs/small/finetune'
        """
        chosen = {key: value for key, value in (("name", name), ("scope", scope)) if value}
        config = override(self.config, chosen)
        return find_own(find_stage(stage).name, config).locate(config.run_dir)

    def read_status(self) -> "list[StageStatus]":
        """The status of the run: its stages in the order in which something was last written, as by `drag-ray status`.

        Raises:
            ArtifactError: no stage was begun, or the folder cannot be read.

        Examples:
            >>> [status.state for status in run.read_status() if status.address == "collect"]
            ['finished']
        """
        from drag_ray.pipeline.status import read_status

        return read_status(self.folder)

    def read_trajectories(self, stage: str = "collect", name: str = "", scope: str = "") -> "pl.DataFrame":
        """The trajectories that a stage has kept so far, a row each, with their turns as lists of structs.

        Args:
            stage: `collect` or `evaluate`.

        Raises:
            DataError: there are none.
            DamageError: they are of a finished stage, and not what it has written.

        Examples:
            >>> run.read_trajectories().select("question", "stop_reason").columns
            ['question', 'stop_reason']
        """
        from drag_ray.api.frames import read_trajectories

        return read_trajectories(self.locate(stage, name, scope))

    def read_results(self, name: str = "", scope: str = "") -> "pl.DataFrame":
        """The results of each policy on each question of the evaluation, a row each.

        Raises:
            ArtifactError: the evaluation has not finished.
            DamageError: its files are not what was written.

        Examples:
            >>> run.read_results()["policy"].unique().sort().to_list()
            ['base', 'question', 'tuned']
        """
        from drag_ray.api.frames import read_results

        return read_results(self.locate("evaluate", name, scope))

    def read_measures(self, name: str = "", scope: str = "") -> "pl.DataFrame":
        """The measures of the evaluation for each policy, a row each.

        Columns: measure, label, policy, value, low, high (the interval), n (questions), unit, higher_is_better. Arguments and
        errors are those of `read_results`.

        Examples:
            >>> run.read_measures().filter(measure="mrr")["policy"].sort().to_list()
            ['base', 'question', 'tuned']
        """
        from drag_ray.api.frames import to_measures
        from drag_ray.evaluate.evaluation_folder import read_comparison

        return to_measures(read_comparison(self.locate("evaluate", name, scope))["rows"])

    def read_questions(self) -> "pl.DataFrame":
        """The questions of the index, or those written from it, with their evidence, answers and side of the split, a row each.

        Raises:
            ArtifactError: the index has not finished.

        Examples:
            >>> run.read_questions().filter(split="test").is_empty()
            False
        """
        import polars as pl

        from drag_ray.corpus.questions import read_run_questions

        written_dir = self.locate("questions")
        return pl.DataFrame(read_run_questions(self._require("index"), written_dir if read_manifest(written_dir) else None))

    def score(self, name: str = "", scope: str = "", **terms: Any) -> "Report":
        """The run's evaluation, scored again; `terms` are those of `drag_ray.score`.

        Examples:
            >>> print(run.score(top_k=1, measures=["mrr"]))
            runs/small/evaluate: scored again: top_k 3 -> 1, ...
        """
        from drag_ray.api.report import score

        return score(self.locate("evaluate", name, scope), **terms)

    def open_searcher(self) -> "Searcher":
        """The index of the run, open for search. It is cheap to open, and safe to share between threads.

        Raises:
            ArtifactError: the index has not finished.
            SearchIndexError: it is stale or damaged, or it does not fit this version.

        Examples:
            >>> hits = run.open_searcher().search("list the images of a repository", top_k=3)
            >>> [hit.rank for hit in hits]
            [1, 2, 3]
        """
        from drag_ray.search.searcher import Searcher

        return Searcher(self._require("index") / "search_index")

    @explain_missing()
    def open_agent(self, adapter: str | Path | None = None, **options: Any) -> "Agent":
        """The policy of this run, to be asked questions, with an engine in this process.

        Without a GPU an engine takes far longer with an adapter than with the model that it is merged into.

        Args:
            adapter: a folder, as `run.locate("finetune") / "adapter"`; that of `engine.adapter` where nothing is said.
            options: of `agent` and `engine`, with a mapping for each, for this call.

        Raises:
            ArtifactError: the index has not finished.
            ConfigError: an option is unknown or wrong, or the adapter cannot be used.
            EngineDiedError: the engine does not start.

        Examples:
            >>> agent = run.open_agent(engine={"model": str(run.locate("finetune") / "merged")})
        """
        from drag_ray.api.agent import Agent
        from drag_ray.rollout.options import build_options

        config = override(self.config, options, sections=("agent", "engine"))
        if adapter is not None:
            config = override(config, {"engine": {"adapter": str(adapter)}})
        index_dir, embed_dir = self._require("index"), open_inputs(STAGES["collect"], config).find("embed")
        if embed_dir:
            require_manifest(embed_dir)
            refuse_damage(embed_dir)
        places = index_dir, self.folder / _ASKED, embed_dir
        return Agent(build_options(config.agent, config.engine, config.rollout, *places))

    def _require(self, stage: str, name: str = "", scope: str = "") -> Path:
        """The folder of a stage that has finished, and whose files are as it left them."""
        folder = self.locate(stage, name, scope)
        require_manifest(folder, f"python jobs/{stage}.py")
        refuse_damage(folder)
        return folder

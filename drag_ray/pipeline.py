"""The stages as data: what each reads, which options and which code it depends on, and so when it must run again.

A stage's identity is its options, the outcomes of the stages that it reads, and the source of the code that it
runs. A stage whose folder holds the finished work of the same identity, undamaged, is skipped; unfinished work of the same
identity is gone on with, and work that failed in part is tried again; anything else is set aside and done anew. Before a stage
is skipped its files are looked at quickly, before it is read completely (see `checksums`).
"""

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from drag_ray import artifacts, provenance
from drag_ray.agent.config import AgentConfig
from drag_ray.artifacts import Identity, Manifest
from drag_ray.collect.config import CollectSections
from drag_ray.config import dump_sections
from drag_ray.damage import find_damage, refuse_damage
from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ConfigError, DamageError
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.finetune.config import FinetuneSections
from drag_ray.format.config import FormatSections
from drag_ray.index.config import IndexSections
from drag_ray.inputs import Inputs
from drag_ray.process.config import ProcessSections
from drag_ray.rollout.config import RolloutConfig
from drag_ray.run_config import RunConfig
from drag_ray.stage_folder import StageFolder

_SHARED_CODE = ("types.py", "schemas.py")
_ROLLOUT_CODE = ("agent", "baselines", "engine", "search", "rollout", "collect")


@dataclass(frozen=True)
class Stage:
    """A stage of the loop.

    Attributes:
        name: its folder in the run, its package in drag_ray and its job.
        summary: the first line of its `--help`.
        reads: stages whose folders it reads.
        reads_if_begun: stages whose folders it reads too, unless they were never started.
        sections: options that it depends on and receives; its command line offers them.
        code: parts of drag_ray that its result depends on.
        placement: options of its sections that do not change what comes out, only where and how fast it runs, if anything.
        packages: packages whose version its result depends on: another one cannot read it, or reads it otherwise.
        own_files: names of files and folders that nobody reads but the stage itself while it is unfinished.
        checked_on_open: folders with too many bytes to be looked at before the stage is read; who opens a file looks at it.
        mends: it does again what is missing from its folder, so what is damaged need not cost the rest.
    """

    name: str
    summary: str
    reads: tuple[str, ...]
    sections: type[Any]
    code: tuple[str, ...]
    reads_if_begun: tuple[str, ...] = ()
    placement: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    own_files: tuple[str, ...] = ()
    checked_on_open: tuple[str, ...] = ()
    mends: bool = False

    def run(self, config: RunConfig, folder: StageFolder) -> dict[str, Any]:
        """Run the stage's own code and return the counts of its summary line."""
        module = importlib.import_module(f"drag_ray.{self.name}.stage")
        return module.run(config.take(self.sections), self.open_inputs(config), folder)

    @property
    def section_names(self) -> tuple[str, ...]:
        """The keys of `RunConfig` that it depends on."""
        return tuple(field.name for field in dataclasses.fields(self.sections))

    def open_inputs(self, config: RunConfig) -> Inputs:
        """The folders that it reads."""
        begun = {name: config.stage_dir(name) for name in self.reads_if_begun}
        folders = {name: config.stage_dir(name) for name in self.reads}
        return Inputs(folders | {name: path if path.exists() else None for name, path in begun.items()})


_ENGINE_PLACEMENT = (
    *("engine.device", "engine.max_num_seqs", "engine.gpu_memory_utilization", "engine.cpu_kv_cache_gib"),
    *("engine.image_threads", "engine.image_cache_gib", "engine.encoder_cache_gib"),
)
_ENGINE_BUT_MODEL = tuple(f"engine.{name}" for name in EngineConfig.model_fields if name != "model")
_ROLLOUT_PLACEMENT = (
    *_ENGINE_PLACEMENT,
    *(f"rollout.{name}" for name in RolloutConfig.model_fields),
)

_ROLLOUT_FILES = ("claims", "running", "forgiven", "corrupt", "logs")

STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage(
            name="index",
            summary="Read documents and questions and build the search index.",
            reads=(),
            sections=IndexSections,
            code=("index", "corpus", "search"),
            packages=("tantivy",),
            checked_on_open=("page_images",),
        ),
        Stage(
            name="collect",
            summary="Roll out the training questions and keep the trajectories.",
            reads=("index",),
            sections=CollectSections,
            code=_ROLLOUT_CODE,
            placement=_ROLLOUT_PLACEMENT,
            own_files=_ROLLOUT_FILES,
            mends=True,
        ),
        Stage(
            name="process",
            summary="Score the searches of the trajectories and print the statistics.",
            reads=("collect",),
            sections=ProcessSections,
            code=("process", "agent/degeneration.py", "agent/scores.py", "agent/answers.py"),
        ),
        Stage(
            name="format",
            summary="Write training rows from the scored searches.",
            reads=("process",),
            reads_if_begun=("index",),  # trajectories from elsewhere come without one
            sections=FormatSections,
            placement=tuple(f"agent.{name}" for name in AgentConfig.model_fields if name != "image_searches"),
            code=(
                *("format", "process/conversations.py", "corpus/split.py", "corpus/components.py"),
                *("agent/action.py", "agent/prompts.py", "agent/protocol.py", "agent/tags.py", "agent/tools.py"),
            ),
        ),
        Stage(
            name="finetune",
            summary="Train a LoRA adapter on the training rows.",
            reads=("format",),
            reads_if_begun=("index",),  # for the page images
            sections=FinetuneSections,
            code=("finetune", "engine"),
            placement=("finetune.num_workers", "finetune.image_workers", "finetune.max_failures", *_ENGINE_BUT_MODEL),
            own_files=("checkpoints",),
            mends=True,  # from its last checkpoint, without training again
        ),
        Stage(
            name="evaluate",
            summary="Compare the base model, the adapter and the baselines on held-out questions.",
            reads=("index",),
            reads_if_begun=("finetune",),  # before training, the base model and the baselines are compared
            sections=EvaluateSections,
            code=(*_ROLLOUT_CODE, "evaluate"),
            # Its rollouts are greedy, and nothing that it reports is made of log-probabilities.
            placement=(*_ROLLOUT_PLACEMENT, "engine.seeds", "engine.logprobs"),
            own_files=_ROLLOUT_FILES,
        ),
    )
}
"""The stages in the order in which they run."""


def compute_identity(stage: Stage, config: RunConfig) -> Identity:
    """What makes the result of a stage with these options.

    Raises:
        ArtifactError: a stage that it reads has not finished.
    """
    options = dump_sections(config.take(stage.sections))
    for key in stage.placement:
        section, _, name = key.partition(".")
        options.get(section, {}).pop(name, None)
    inputs = {name: artifacts.require_manifest(config.stage_dir(name)).outcome_fingerprint for name in _list_reads(stage, config)}
    inputs |= {name: version(name) for name in stage.packages}
    inputs |= _fingerprint_sources(stage, config)
    max_tries = config.rollout.max_tries if "rollout" in stage.section_names else 0
    code = provenance.compute_code_fingerprint((*_SHARED_CODE, *stage.code))
    return Identity(stage.name, options, inputs, code, max_tries)


def run_stages(stages: Sequence[Stage], config: RunConfig, start_ray: Callable[[], object] = lambda: None) -> None:
    """Run stages in their order; one that is damaged where only its reader looks is done again before its reader.

    Args:
        start_ray: called before a stage works, so that what is wrong or unchanged is said at once.
    """
    try:
        for stage in stages:
            run_stage(stage, config, start_ray)
    except DamageError as error:
        if config.verify or len(stages) == 1:
            raise
        print(f"{error}\nLooking at every byte of the run, from the first stage on.", flush=True)
        run_stages(stages, config.model_copy(update={"verify": True}), start_ray)


def run_stage(stage: Stage, config: RunConfig, start_ray: Callable[[], object] = lambda: None) -> Manifest:
    """Run a stage, go on with it, or skip it if its folder holds the finished work of the same identity (see `run_stages`).

    Raises:
        DamageError: a stage that it reads is damaged.
    """
    identity = compute_identity(stage, config)
    damage = find_damage(config.stage_dir(stage.name), whole=config.verify)
    folder = StageFolder(config.stage_dir(stage.name), identity, damage, stage.mends)
    finished = artifacts.read_manifest(folder.path) if folder.is_finished() else None
    if finished:
        print(f"{stage.name}: unchanged, skipped ({folder.path})", flush=True)
        return finished
    for name in _list_reads(stage, config):
        refuse_damage(config.stage_dir(name), whole=True, but=() if config.verify else STAGES[name].checked_on_open)
    start_ray()
    with folder:
        print(f"{stage.name}: {'going on' if folder.resumed else 'starting'} in {folder.path}", flush=True)
        manifest = folder.finish(stage.run(config, folder), stage.own_files)
    counts = ", ".join(f"{name} {_format_count(value)}" for name, value in manifest.counts.items() if value is not None)
    print(f"{stage.name}: done in {manifest.duration_s:.0f} s: {counts}", flush=True)
    return manifest


def _list_reads(stage: Stage, config: RunConfig) -> list[str]:
    return [*stage.reads, *(name for name in stage.reads_if_begun if config.stage_dir(name).exists())]


def _fingerprint_sources(stage: Stage, config: RunConfig) -> dict[str, str]:
    """What a stage reads from outside the run: by name, size and time of change, which is cheap for a large collection."""
    return {key: artifacts.compute_fingerprint(sorted(_list_states(root))) for key, root in _list_sources(stage, config).items()}


def _list_states(root: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of change of each file. One that cannot be looked at counts by its name: who reads it says why."""
    paths = [Path(folder, name) for folder, _, names in os.walk(root) for name in names] if root.is_dir() else [root]
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            yield str(path), 0, 0
        else:
            yield str(path), found.st_size, found.st_mtime_ns


def _list_sources(stage: Stage, config: RunConfig) -> dict[str, Path]:
    """Documents, questions and adapters from outside the run. An adapter that is missing is refused where it is opened."""
    sources = {}
    if stage.name == "index":
        for key, source in (("documents", config.corpus.documents), ("questions", config.corpus.questions)):
            if source in ("", "manuals"):
                continue
            sources[key] = Path(source).expanduser()
            if not sources[key].exists():
                raise ConfigError(f"corpus.{key} {source!r}: no such file or folder.")
    if "engine" in stage.section_names and "engine.adapter" not in stage.placement and config.engine.adapter:
        sources["engine.adapter"] = Path(config.engine.adapter)
    if stage.name == "evaluate":
        folders = (entry.partition("=")[2] for entry in config.evaluate.adapters)
        sources |= {f"evaluate.adapters {folder}": Path(folder) for folder in folders if folder}
    return {key: path for key, path in sources.items() if path.exists()}


def _format_count(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)

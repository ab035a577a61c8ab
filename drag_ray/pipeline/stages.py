"""The stages as data: what each reads, which options it depends on, and which of them change nothing but where it runs.

What is declared here is all that a stage is given: the sections of its config.py and the folders that it reads (see `inputs`).
`runner` runs them, and skips those for which nothing of this has changed.
"""

import importlib
from dataclasses import dataclass
from typing import Any

from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.interruption import let_waits_end
from drag_ray.collect.config import CollectSections
from drag_ray.config import Sections
from drag_ray.corpus.config import CorpusConfig
from drag_ray.embed.config import EmbedSections
from drag_ray.engine.config import EngineConfig
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.finetune.config import FinetuneSections
from drag_ray.format.config import FormatConfig, FormatSections
from drag_ray.index.config import READERS, IndexSections
from drag_ray.process.config import ProcessSections
from drag_ray.questions.config import JOURNAL_NAME as DRAFTS_NAME
from drag_ray.questions.config import READ_OF_CORPUS, QuestionsSections
from drag_ray.rl.config import LIMITS, READ_OF_FORMAT, UNREAD_OF_FINETUNE, RlSections
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.folder import BEGUN_DIR_NAME, IMAGES_DIR_NAME, LOGS_DIR_NAME, OWN_FILES
from drag_ray.serve.config import ServeSections
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.tune.config import READ_OF_AGENT, TuneSections


@dataclass(frozen=True)
class Stage:
    """A stage of the loop.

    Attributes:
        name: its folder in the run, its package in drag_ray and its job.
        summary: the first line of its `--help`.
        version: raised when, and only when, the same inputs and options give another output. Finished work of another version
            is done anew: `tests/integration/pipeline/test_stage_outputs.py` keeps small outputs of each version.
        sections: options that it depends on and receives; its command line offers them.
        reads: stages whose folders it reads, unless its options do without them (see `Sections.list_unread`).
        optional_inputs: stages whose folders it reads too, unless they were never started.
        runtime_only_options: options of its sections that do not change what comes out, only where and how fast it runs.
        packages: packages whose version its result depends on: another one cannot read it, or reads it otherwise.
        own_files: names of files and folders that nobody reads but the stage itself while it is unfinished.
        checked_on_open: folders with too many bytes to be looked at before the stage is read; who opens a file looks at it.
        listed_folders: folders that it writes with a list of their own files, whose checksums are not computed again.
        repairs_in_place: it does again what is missing from its folder, so what is damaged need not cost the rest.
        keeps_earlier: what it made before stays in its place, and is read, until it has made the new.
        way_counts: counts of the way to an outcome that is the same by any.
        is_shared: a run has one, whatever the scope of the stages that read it.
        switch: the option of the run with which the pipeline runs it; without one it always does.
    """

    name: str
    summary: str
    sections: type[Sections]
    version: int = 1
    reads: tuple[str, ...] = ()
    optional_inputs: tuple[str, ...] = ()
    runtime_only_options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    own_files: tuple[str, ...] = ()
    checked_on_open: tuple[str, ...] = ()
    listed_folders: tuple[str, ...] = ()
    repairs_in_place: bool = False
    keeps_earlier: bool = False
    way_counts: tuple[str, ...] = ()
    is_shared: bool = False
    switch: str = ""

    @property
    def module(self) -> str:
        """The dotted name of its code."""
        return f"drag_ray.{self.name}.stage"

    def run(self, sections: Sections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
        """Run the stage's own code and return the counts of its summary line."""
        module = importlib.import_module(self.module)
        let_waits_end()
        return module.run(sections, inputs, folder)


_ENGINE_RUNTIME = (
    *("engine.device", "engine.max_num_seqs", "engine.gpu_memory_utilization"),
    *("engine.cpu_kv_cache_gib", "engine.cpu_threads"),
    *("engine.image_cache_gib", "engine.encoder_cache_gib"),
)
_EMBEDDING_RUNTIME = ("embedding.device", "embedding.batch_size", "embedding.other_index")
_ROLLOUT_RUNTIME = (*_ENGINE_RUNTIME, *(f"rollout.{name}" for name in RolloutConfig.model_fields))

STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage(
            name="index",
            summary="Read documents and questions and build the search index.",
            sections=IndexSections,
            version=4,
            runtime_only_options=(*_EMBEDDING_RUNTIME, *("image_embedding.device", "image_embedding.batch_size")),
            packages=(*READERS, "datasketch", "tantivy"),  # the last two find near-duplicates, and search
            checked_on_open=("page_images", "question_images"),
            listed_folders=("search_index", "search_index_segments", "vectors", "image_vectors"),
            keeps_earlier=True,  # searches go on, and documents that have not changed are taken from there
            way_counts=("kept_documents", "read_documents", "removed_documents"),
            is_shared=True,
        ),
        Stage(
            name="questions",
            summary="Have a model write questions, with answers and evidence, from the pages of the index.",
            sections=QuestionsSections,
            version=5,
            reads=("index",),
            runtime_only_options=(
                *_ROLLOUT_RUNTIME,
                "engine.logprobs",
                *(f"corpus.{name}" for name in CorpusConfig.model_fields if name not in READ_OF_CORPUS),
            ),
            packages=("datasketch", "py3langid", "scikit-learn"),
            own_files=(DRAFTS_NAME, BEGUN_DIR_NAME, LOGS_DIR_NAME),
            checked_on_open=("question_images",),
            repairs_in_place=True,  # from its journal, without asking the model again
            is_shared=True,
            switch="writes_questions",
        ),
        Stage(
            name="tune",
            summary="Choose how pages are searched, by training questions, before anything is trained.",
            sections=TuneSections,
            version=4,
            reads=("index",),
            optional_inputs=("questions",),
            runtime_only_options=tuple(f"agent.{name}" for name in AgentConfig.model_fields if name not in READ_OF_AGENT),
            is_shared=True,
            switch="tune_search",
        ),
        Stage(
            name="collect",
            summary="Roll out the training questions and keep the trajectories.",
            sections=CollectSections,
            version=2,
            reads=("index",),
            optional_inputs=("questions", "embed"),  # where the index has none; where the agent searches by vectors
            runtime_only_options=(*_ROLLOUT_RUNTIME, "telemetry.endpoint", "telemetry.content"),
            own_files=OWN_FILES,
            checked_on_open=(IMAGES_DIR_NAME,),
            repairs_in_place=True,
        ),
        Stage(
            name="process",
            summary="Score the searches of the trajectories and print the statistics.",
            sections=ProcessSections,
            version=2,
            reads=("collect",),
            checked_on_open=(IMAGES_DIR_NAME,),
        ),
        Stage(
            name="format",
            summary="Write training rows from the scored searches.",
            sections=FormatSections,
            version=3,
            reads=("process",),
            optional_inputs=("index", "questions", "embed"),  # trajectories from elsewhere come without an index
            checked_on_open=(IMAGES_DIR_NAME,),
        ),
        Stage(
            name="finetune",
            summary="Train a LoRA adapter on the training rows.",
            sections=FinetuneSections,
            reads=("format",),
            optional_inputs=("index",),  # for the page images
            runtime_only_options=(
                *("finetune.num_workers", "finetune.min_workers"),
                *(f"engine.{name}" for name in EngineConfig.model_fields if name not in ("model", "adapter")),
            ),
            own_files=("checkpoints", "own_rows"),
            repairs_in_place=True,  # from its last checkpoint, without training again
        ),
        Stage(
            name="rl",
            summary="Train the policy by reinforcement learning while it collects.",
            sections=RlSections,
            version=3,
            reads=("index",),
            optional_inputs=("questions", "embed"),
            runtime_only_options=(
                *_ROLLOUT_RUNTIME,
                *(f"rl.{name}" for name in LIMITS),
                *(f"format.{name}" for name in FormatConfig.model_fields if name not in READ_OF_FORMAT),
                *(f"finetune.{name}" for name in (*UNREAD_OF_FINETUNE, "num_workers")),
                "process.allow_mixed",
            ),
            own_files=("train", "policies", "steps", "validation"),
            repairs_in_place=True,  # from its ledger, without a step taken twice
            switch="reinforce",
        ),
        Stage(
            name="embed",
            summary="Embed the pages of an index again, with a model that was trained or another one.",
            sections=EmbedSections,
            reads=("index",),
            optional_inputs=("finetune",),  # for the model
            runtime_only_options=_EMBEDDING_RUNTIME,
            keeps_earlier=True,  # searches go on
            switch="train_embedder",
        ),
        Stage(
            name="evaluate",
            summary="Compare the base model, the adapter and the baselines on held-out questions.",
            sections=EvaluateSections,
            version=8,
            reads=("index",),
            # Before training, the base model and the baselines are compared. What was trained from is known to finetune best, so
            # it comes last; format knows the validation questions.
            optional_inputs=("questions", "embed", "format", "finetune"),
            # Its rollouts are greedy, and nothing that it reports is made of log-probabilities.
            runtime_only_options=(*_ROLLOUT_RUNTIME, "engine.seeds", "engine.logprobs"),
            own_files=OWN_FILES,
        ),
    )
}
"""The stages in the order in which they run."""

APART = ("embed", "rl")
"""Stages that have no place in the line of a pipeline, as they have options of their own there: it embeds pages for what it
trains beside its policy alone, and reinforcement learning goes on from the adapter that was trained before."""

SERVE = Stage(
    name="serve",
    summary="Serve the base model and its adapters, and search with them, behind one OpenAI-compatible endpoint.",
    sections=ServeSections,
    optional_inputs=("finetune", "index", "embed"),
)
"""It leaves no folder behind: its work is done as long as it runs."""

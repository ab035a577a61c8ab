"""The options that the workers of a run are made from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from drag_ray.agent.config import AgentConfig, PromptSet
from drag_ray.agent.prompts import list_shown_functions
from drag_ray.agent.retrieval import find_vectors
from drag_ray.agent.task import Policy
from drag_ray.agent.tasks.task import load_task
from drag_ray.baselines.baseline import Baseline
from drag_ray.cluster.metrics import name_tags
from drag_ray.cluster.telemetry import TelemetryConfig
from drag_ray.corpus import image_store, question_images
from drag_ray.corpus.image_degradation import DegradationConfig
from drag_ray.corpus.image_store import ImageStores, ImageSupply
from drag_ray.corpus.questions import find_questions_dir
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.endpoints.endpoint import build_endpoint_engine
from drag_ray.engine.endpoints.spending import SPENDING_NAME
from drag_ray.engine.generate import GenerateFn, ImageSource
from drag_ray.engine.models.adapter import check_adapter
from drag_ray.engine.models.chat_template import check_functions_shown
from drag_ray.engine.vllm import VllmEngine
from drag_ray.errors import ConfigError
from drag_ray.rollout.config import RolloutConfig
from drag_ray.rollout.folder import IMAGES_DIR_NAME
from drag_ray.search.index import copy_to_node
from drag_ray.stage_runs.store import StoredStage
from drag_ray.storage.file_access import open_own_folder
from drag_ray.tools.calls import CallTool

BuildEngine = Callable[[EngineConfig, ImageSource | None, Sequence[str]], GenerateFn]
BuildCallers = Callable[[], Mapping[str, CallTool]]


@dataclass(frozen=True)
class WorkerOptions:
    """The options of a worker; it crosses process borders.

    `policies` are those that write on the engine, by the names in the tasks; where there is but one, that is empty. Rollouts of a
    baseline need `baselines`, prepared and by name, or `proposers` where they are examples for the policy; an agent that is shown
    images needs `image_dirs`, the stores of the index, beside which the rollouts' own is used; `degradation` makes them worse.
    `vectors_dir` is read where the agent searches by vectors. With a `node_dir` the index is copied there and searched there.
    `stored` are the stages that are read, for nodes that do not see the run's folder: such a node has images and logs in its
    `local_dir`, and further images from its `supply` (`detached`). `stage_dir` is the folder by which metrics and spans are told
    apart, where that is not `run_dir`. `build_engine` makes the engine in the worker's own process, with the adapters of these
    folders, `build_callers` what calls those tools that are not called in that process, by name.
    """

    run_dir: Path
    index_dir: Path
    agent: AgentConfig
    engine: EngineConfig
    policies: Mapping[str, Policy]
    concurrent_rollouts: int
    flush_s: float
    vectors_dir: Path = Path()
    max_tries: int = 1
    enough_successes: int = 0
    baselines: Mapping[str, Baseline] | None = None
    proposers: Mapping[str, Baseline] | None = None
    prompt_sets: tuple[PromptSet, ...] = ()
    image_dirs: tuple[Path, ...] = ()
    degradation: DegradationConfig = field(default_factory=DegradationConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    node_dir: Path | None = None
    stored: tuple[StoredStage, ...] = ()
    local_dir: Path | None = None
    stage_dir: Path | None = None
    supply: ImageSupply | None = None
    borrows_engine: bool = False
    build_engine: BuildEngine = VllmEngine
    build_callers: BuildCallers = dict[str, CallTool]

    @property
    def tags(self) -> dict[str, str]:
        """The tags of metrics and spans."""
        return name_tags(self.stage_dir or self.run_dir)


def start_engine(options: WorkerOptions) -> GenerateFn:
    """Make a worker's engine in this process, with the images that its agent can be shown."""
    stores = open_stores(options)
    images = ImageSource(stores.open, per_prompt=count_images(options)) if stores else None
    return options.build_engine(options.engine, images, list_adapters(options))


def locate_index(options: WorkerOptions) -> Path:
    """The index that a worker searches: on its node's own disk where there is a folder for it. Raises SearchIndexError: see
    `copy_to_node`; ArtifactError where the node's disk refuses."""
    return copy_to_node(options.index_dir, open_own_folder(options.node_dir)) if options.node_dir else options.index_dir


def count_images(options: WorkerOptions) -> int:
    """Images that a prompt can hold; 0 where the agent sees none."""
    if not options.image_dirs:
        return 0
    agent = options.agent
    num_pages, num_questions = load_task(agent.task).count_shown(agent)
    of_pages = num_pages if agent.page_view == "image" else 0
    of_tools = agent.max_images if agent.load_tools().shows_images else 0
    of_question = question_images.MAX_IMAGES if any(map(_has_question_images, options.image_dirs)) else 0
    return max(1, of_pages + of_tools + num_questions * of_question)


def open_stores(options: WorkerOptions) -> ImageStores | None:
    """The stores of the images of a run's rollouts; None where the agent sees none."""
    if not options.image_dirs:
        return None
    return ImageStores(list_stores(options.local_dir or options.run_dir, options.image_dirs), options.supply)


def list_stores(run_dir: Path, image_dirs: Sequence[Path]) -> tuple[Path, ...]:
    """The store of the rollouts kept in `run_dir`, then those of the index."""
    return run_dir / IMAGES_DIR_NAME, *image_dirs


def list_adapters(options: WorkerOptions) -> list[str]:
    """The folders of the adapters that the policies write with, each once."""
    return list(dict.fromkeys(policy.adapter for policy in options.policies.values() if policy.adapter))


def build_options(
    agent: AgentConfig,
    engine: EngineConfig,
    rollout: RolloutConfig,
    index_dir: Path,
    run_dir: Path,
    embed_dir: Path | None = None,
    written_dir: Path | None = None,
) -> WorkerOptions:
    """The options of a run's workers, in which one policy writes: the model with the adapter that the engine names.

    Args:
        index_dir: the folder of the index stage.
        run_dir: where the rollouts are kept.
        embed_dir: the folder of the stage `embed`, where it is read.
        written_dir: that of the stage `questions`, where it is read.

    Raises:
        SearchIndexError: the vectors that are to be searched are of another index.
        ConfigError: the agent is to be shown page images, but the index has none; the adapter cannot be used; a tool cannot be
            had or lacks something in the index, or the model's chat template does not show it; there are no vectors to search.
    """
    check_adapter(engine)
    if agent.forced_calls and engine.backend != "vllm":
        raise ConfigError("agent.forced_calls: an endpoint's replies cannot be drawn in a form. Leave it out.")
    if engine.backend == "vllm":
        check_functions_shown(engine.model, list_shown_functions(agent))
    agent.load_tools().check_index(index_dir.resolve())
    vectors_dir = find_vectors(index_dir, embed_dir, agent.retrieval, "agent.retrieval")
    ask_endpoint = partial(build_endpoint_engine, run_dir.resolve() / SPENDING_NAME)
    return WorkerOptions(
        run_dir=run_dir.resolve(),
        index_dir=(index_dir / "search_index").resolve(),
        agent=agent,
        engine=engine,
        policies={"": Policy(engine.model, engine.adapter)},
        concurrent_rollouts=rollout.concurrent_rollouts,
        flush_s=rollout.flush_s,
        vectors_dir=vectors_dir.resolve(),
        max_tries=rollout.max_tries,
        image_dirs=_find_images(agent, index_dir.resolve(), written_dir),
        node_dir=rollout.node_dir,
        build_engine=ask_endpoint if engine.backend == "openai" else VllmEngine,
    )


def with_degradation(options: WorkerOptions, config: DegradationConfig, option: str) -> WorkerOptions:
    """The same for an agent that is shown worse pictures. Raises ConfigError where the agent is shown none."""
    if config.share and not options.image_dirs:
        raise ConfigError(
            f"{option}.share {config.share:g}: the agent is shown no pictures that could be worse. Set agent.page_view to image, "
            "name a tool that shows images, ask questions with images, or leave the share 0."
        )
    return replace(options, degradation=config)


def _find_images(agent: AgentConfig, index_dir: Path, written_dir: Path | None) -> tuple[Path, ...]:
    """The stores of pages and of the questions that are asked, there or not; none where the agent is shown no images."""
    pages_dir = index_dir / image_store.DIR_NAME
    questions_dir = find_questions_dir(index_dir, written_dir).resolve() / question_images.DIR_NAME
    if agent.page_view == "image" and not pages_dir.is_dir():
        raise ConfigError("agent.page_view is image, but the index holds no page images. Build it with --corpus.page-images.")
    sees_images = agent.page_view == "image" or agent.load_tools().shows_images or _has_question_images(questions_dir)
    return (pages_dir, questions_dir) if sees_images else ()


def _has_question_images(folder: Path) -> bool:
    return folder.name == question_images.DIR_NAME and folder.is_dir()

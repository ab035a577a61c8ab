"""Rollouts on a node that does not see the folder of their run, because it shares no disk with the driver's.

What they read is fetched from the store of finished stages to the node's own disk: a stage once a node, and a picture of a page
when it is first asked for. What they keep is written by the driver's node, so that it is there as if all nodes shared a disk.
"""

import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from drag_ray.corpus import image_store
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import GenerateFn, Generation, ImageSource, Request
from drag_ray.errors import ConfigError
from drag_ray.rollout.folder import ATTEMPT_NAME, IMAGES_DIR_NAME
from drag_ray.rollout.journal import Keep, keep_here
from drag_ray.rollout.options import BuildEngine, WorkerOptions
from drag_ray.stage_runs.store import StageStore, StoredStage
from drag_ray.storage import artifacts, checksums
from drag_ray.storage.checksums import LIST_NAME, Checksum
from drag_ray.storage.file_access import open_own_folder, reading
from drag_ray.storage.object_store import is_uri

_STAGES_DIR_NAME = "stages"


def resolve_worker_paths(options: WorkerOptions, attempt: str, keep: Keep) -> tuple[WorkerOptions, Keep]:
    """The options of a worker on this node, and how it keeps its records.

    Args:
        attempt: what the driver has written into the run's folder: who reads the same there sees that folder.
        keep: calls functions on the driver's node.

    Raises:
        ConfigError: the node does not see the folder, and it is not said where else it finds what is read, or this cannot be had
            from there.
        ArtifactError: a stage cannot be fetched.
    """
    try:
        if (options.run_dir / ATTEMPT_NAME).read_text() == attempt:
            return options, keep_here
    except OSError:
        pass
    return _detach(options, keep), keep


def _detach(options: WorkerOptions, keep: Keep) -> WorkerOptions:
    problem = f"the node {socket.gethostname()} does not see {options.run_dir}"
    if not options.stored or options.node_dir is None:
        raise ConfigError(
            f"{problem}. Keep the run on storage that all nodes share, or set storage.uri to the place of its finished stages, "
            "and rollout.node_dir to a folder on each node for fetched files."
        )
    if options.engine.backend == "openai":
        raise ConfigError(f"{problem}, where the replies of an endpoint are counted. Ask it from nodes that see the folder.")
    if options.borrows_engine:
        raise ConfigError(f"{problem}, and engines that are kept read it. Set rollout.keep_engines to false.")
    node_dir = open_own_folder(options.node_dir)
    places = _Places(options.stored, node_dir / _STAGES_DIR_NAME)
    index_dir = places.locate(options.index_dir)
    supply = None
    if options.image_dirs:
        index = next(stage for stage in options.stored if options.index_dir.is_relative_to(stage.folder))
        supply = _PictureSupply(index, places.locate(index.folder), options.run_dir, keep)
    return replace(
        options,
        index_dir=index_dir,
        vectors_dir=places.locate(options.vectors_dir),
        image_dirs=tuple(map(places.locate, options.image_dirs)),
        node_dir=None,
        local_dir=node_dir,
        supply=supply,
        build_engine=_build_from(places, options.build_engine),
    )


class _Places:
    """The places where this node has what lies in the stages of a run, fetched when they are first asked for."""

    def __init__(self, stored: Sequence[StoredStage], folder: Path) -> None:
        self._stored = stored
        self._folder = folder

    def locate(self, path: Path) -> Path:
        """The place of a file or folder; its own where it lies in none of the stages."""
        for stage in self._stored:
            if path.is_relative_to(stage.folder):
                copy = self._folder / stage.checksums / stage.address
                if not copy.exists():
                    store = StageStore(stage.storage)
                    store.pull(stage.address, self._folder / stage.checksums, stage.checksums, without=(image_store.DIR_NAME,))
                return copy / path.relative_to(stage.folder)
        return path


class _PictureSupply:
    """The pictures of pages from the store of finished stages, and the rollouts' own from and to the folder of the run."""

    def __init__(self, index: StoredStage, index_dir: Path, run_dir: Path, keep: Keep) -> None:
        self._index = index
        self._store = StageStore(index.storage)
        self._index_dir = index_dir
        self._run_dir = run_dir
        self._keep = keep

    @cached_property
    def _listed(self) -> dict[str, Checksum]:
        """The pictures of pages by their keys."""
        with reading(path := self._index_dir / LIST_NAME):
            listed = checksums.parse_list(path.read_text(encoding="utf-8"))
        prefix = f"{image_store.DIR_NAME}/"
        return {checksum.path.removeprefix(prefix): checksum for checksum in listed if checksum.path.startswith(prefix)}

    def fetch(self, key: str, path: Path) -> bool:
        """See `ImageSupply`."""
        if key in self._listed:
            self._store.fetch_file(self._index.address, self._index.checksums, self._listed[key], path)
            return True
        data = self._keep(_read_own, self._run_dir, key)
        if data is not None:
            artifacts.write_bytes(path, data)
        return data is not None

    def keep(self, key: str, path: Path) -> None:
        """See `ImageSupply`."""
        self._keep(artifacts.write_bytes, self._run_dir / IMAGES_DIR_NAME / key, path.read_bytes())


def _read_own(run_dir: Path, key: str) -> bytes | None:
    path = run_dir / IMAGES_DIR_NAME / key
    with reading(path):
        return path.read_bytes() if path.is_file() else None


def _build_from(places: _Places, build_engine: BuildEngine) -> BuildEngine:
    """Builds the engine with the node's own copies of model and adapters, which requests name as the run does."""

    def build(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> GenerateFn:
        copies = {adapter: str(places.locate(Path(adapter))) for adapter in adapters}
        model = config.model if is_uri(config.model) else str(places.locate(Path(config.model)))
        engine = build_engine(config.model_copy(update={"model": model}), images, list(copies.values()))

        async def generate(request: Request) -> Generation:
            return await engine(replace(request, adapter=copies.get(request.adapter, request.adapter)))

        return generate

    return build

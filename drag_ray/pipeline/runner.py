"""Runs stages: each when, and only when, something has changed that its result depends on.

A stage's identity is its version, its options and the outcomes of the stages that it reads. A stage whose folder holds the
finished work of the same identity, undamaged, is skipped; unfinished work of the same identity is gone on with, and work that
failed in part is tried again; anything else is set aside and done anew. Before a stage is skipped its files are looked at
quickly, before it is read completely (see `checksums`).
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from drag_ray.cluster.ledger import LEDGER_NAME, Ledger
from drag_ray.cluster.metrics import name_tags, open_stage_recorder
from drag_ray.cluster.nodes import count_machines
from drag_ray.errors import ConfigError, DamageError
from drag_ray.finetune.losses import LOSSES
from drag_ray.messages import about
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.stages import APART, STAGES, Stage
from drag_ray.stage_runs.address import Address, parse_address
from drag_ray.stage_runs.damage import find_damage, refuse_damage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.stage_runs.store import StageStore
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity, Manifest, is_begun, require_manifest
from drag_ray.storage.file_access import list_folder
from drag_ray.storage.object_store import ObjectStore

_logger = logging.getLogger(__name__)


def list_pipeline(config: RunConfig) -> list[Stage]:
    """The stages that the pipeline runs with these options, in their order."""
    chosen = [stage for stage in STAGES.values() if not stage.switch or getattr(config, stage.switch)]
    return [stage for stage in chosen if stage.name not in APART]


def find_own(name: str, config: RunConfig) -> Address:
    """The folder of a stage with these options. Raises ConfigError where the run has both a folder of this stage and named
    instances of it, which would lie within each other."""
    unnamed = _find_unnamed(name, config)
    folder = unnamed.locate(config.run_dir)
    if config.name and is_begun(folder):
        raise ConfigError(
            f"name {config.name!r}: {folder} holds this stage without a name. Move its files to "
            f"{unnamed}/SOME_NAME, where it stays valid, or leave out --name."
        )
    named = _list_names(folder)
    if named and not config.name:
        raise ConfigError(f"{folder} holds instances with names ({', '.join(named)}). Name this one too: --name NAME.")
    return replace(unnamed, name=config.name)


def find_inputs(stage: Stage, config: RunConfig) -> dict[str, Address]:
    """The folders of the stages that a stage reads: those that `reads` names, the others in its own scope. One that need not have
    been started and was not, or is not read with these options, is left out. Raises ConfigError where an entry of `reads` is no
    address of its stage, or it does not say which of several instances is read."""
    unread = config.take(stage.sections).list_unread()
    begun = {name: _find_input(name, config) for name in stage.optional_inputs if name not in unread}
    begun = {name: address for name, address in begun.items() if address.locate(config.run_dir).exists()}
    return {name: _find_input(name, config) for name in stage.reads if name not in unread} | begun


def open_inputs(stage: Stage, config: RunConfig) -> Inputs:
    """The folders that a stage reads. Errors are those of `find_inputs`."""
    folders = {name: address.locate(config.run_dir) for name, address in find_inputs(stage, config).items()}
    return Inputs(dict.fromkeys(stage.optional_inputs) | folders, config.run_dir, config.storage)


def pull_inputs(stage: Stage, config: RunConfig) -> None:
    """Fetch what a stage reads, and what that was made from, as far as it is not in the run and is where `storage.uri` says.
    Raises ArtifactError where the store does not answer, or what it holds is not what was sent."""
    if not config.storage.uri:
        return
    store = StageStore(config.storage)
    unread = config.take(stage.sections).list_unread()
    for name in (name for name in (*stage.reads, *stage.optional_inputs) if name not in unread):
        address = _find_chosen(name, config) or _find_unnamed(name, config)
        store.pull_lineage(str(address), config.run_dir)


def _find_chosen(name: str, config: RunConfig) -> Address | None:
    """The folder that `reads` names for a stage."""
    chosen = {stage: address for stage, _, address in (entry.partition("=") for entry in config.reads)}
    try:
        return parse_address(chosen[name], name) if name in chosen else None
    except ValueError as error:
        raise ConfigError(f"reads: {error}.") from None


def _find_input(name: str, config: RunConfig) -> Address:
    if chosen := _find_chosen(name, config):
        return chosen
    address = _find_unnamed(name, config)
    folder = address.locate(config.run_dir)
    named = _list_names(folder)
    if named:
        raise ConfigError(
            f"{folder} holds instances with names ({', '.join(named)}). Say which one is read, for "
            f"example --reads {name}={address}/{named[0]}."
        )
    return address


def _find_unnamed(name: str, config: RunConfig) -> Address:
    """The folder of a stage without a name in the scope of these options."""
    return Address(name, scope="" if STAGES[name].is_shared else config.scope)


def _list_names(folder: Path) -> list[str]:
    """The names of the instances in a folder that is no stage itself."""
    if is_begun(folder) or not folder.is_dir():
        return []
    return [path.name for path in list_folder(folder) if not path.name.startswith((".", "_")) and is_begun(path)]


def compute_identity(stage: Stage, config: RunConfig) -> Identity:
    """The identity of a stage with these options: what makes its result. Raises ArtifactError where a stage that it reads has not
    finished."""
    sections = config.take(stage.sections)
    options = sections.dump()
    for key in stage.runtime_only_options:
        section, _, name = key.partition(".")
        options.get(section, {}).pop(name, None)
    read = find_inputs(stage, config)
    finished = {name: require_manifest(address.locate(config.run_dir), address.command) for name, address in read.items()}
    outcomes = {name: manifest.outcome_fingerprint for name, manifest in finished.items()}
    versions = {name: _find_version(name) for name in stage.packages}
    own = find_own(stage.name, config)
    return Identity(
        stage=stage.name,
        config=options,
        inputs=outcomes | versions | _fingerprint_sources(sections.list_sources()) | _fingerprint_code(sections.list_code()),
        version=stage.version,
        max_tries=config.rollout.max_tries if "rollout" in stage.sections.list_names() else 0,
        command=f"{own.command} --verify",
        address=str(own),
        reads={name: str(address) for name, address in read.items()},
        way_counts=stage.way_counts,
    )


def run_stages(stages: Sequence[Stage], config: RunConfig, start_ray: Callable[[], object] = lambda: None) -> dict[str, Manifest]:
    """Run stages in their order; one that is damaged where only its reader looks is done again before its reader. Returns the
    manifest of each by its address. Raises ConfigError where a stage cannot be run with these options; then none has been.
    `start_ray`: called before a stage works, so that what is wrong or unchanged is said at once."""
    check_stages(stages, config)
    try:
        manifests = [run_stage(stage, config, start_ray) for stage in stages]
    except DamageError as error:
        if config.verify or len(stages) == 1:
            raise
        _logger.warning(f"{error}\nLooking at every byte of the run, from the first stage on.")
        return run_stages(stages, config.model_copy(update={"verify": True}), start_ray)
    return {manifest.stage: manifest for manifest in manifests}


def check_stages(stages: Sequence[Stage], config: RunConfig) -> None:
    """Look at options before anything works with them. Raises ConfigError where one of the stages cannot be run with these, or
    finetune would miss the rows that it reads."""
    for stage in stages:
        config.take(stage.sections).check()
    wanted = config.finetune.chosen_method.row_format
    names = {stage.name for stage in stages}
    if {"format", "finetune"} <= names and wanted not in config.format.formats and not config.finetune.data:
        raise ConfigError(
            f"finetune.method {config.finetune.method} reads rows of the format {wanted}, and format.formats has "
            f"{', '.join(config.format.formats)}. Name {wanted} there too, or have the method read another where it can."
        )
    loss, baseline = config.finetune.grpo.loss, LOSSES[config.finetune.grpo.loss].baseline
    if {"format", "finetune"} <= names and config.finetune.method == "grpo" and config.format.baseline != baseline:
        raise ConfigError(
            f"finetune.grpo.loss {loss} is made for advantages above the baseline {baseline}, and format.baseline is "
            f"{config.format.baseline}. Set it to {baseline}."
        )


def run_stage(stage: Stage, config: RunConfig, start_ray: Callable[[], object] = lambda: None) -> Manifest:
    """Run a stage, go on with it, or skip it if its folder holds the finished work of the same identity (see `run_stages`).

    Raises:
        DamageError: a stage that it reads is damaged.
        StorageError: the store that `storage.uri` names does not answer. A stage that has finished stays so, and is sent when it
            is started again.
    """
    pull_inputs(stage, config)
    identity = compute_identity(stage, config)
    stage_dir = config.run_dir / identity.address
    _pull_own(identity, config)
    damage = find_damage(stage_dir, whole=config.verify)
    folder = StageFolder(stage_dir, identity, damage, stage.repairs_in_place, stage.keeps_earlier)
    finished = artifacts.read_manifest(folder.path) if folder.is_finished() else None
    if finished:
        _logger.info(f"{identity.address}: unchanged, skipped ({folder.path})")
        _push_own(identity, config)
        return finished
    for name, address in find_inputs(stage, config).items():
        refuse_damage(
            address.locate(config.run_dir), whole=True, quick_folders=() if config.verify else STAGES[name].checked_on_open
        )
    start_ray()
    with folder, about(**name_tags(folder.path)):
        _logger.info(f"{identity.address}: {'going on' if folder.resumed else 'starting'} in {folder.path}")
        recorder = open_stage_recorder(folder.path)
        recorder.set_running(True)
        try:
            with Ledger(folder.path / LEDGER_NAME, config.cost, count_machines) as ledger:
                counts = run_code(stage, config, folder)
            manifest = folder.finish(counts, (*stage.own_files, LEDGER_NAME), ledger.summarise(), stage.listed_folders)
        finally:
            recorder.set_running(False)
    figures = manifest.counts | {f"machines_{name}": value for name, value in manifest.spent.items()}
    said = ", ".join(f"{name} {_format_count(value)}" for name, value in figures.items() if value is not None)
    _logger.info(f"{identity.address}: done in {manifest.duration_s:.0f} s: {said}")
    _push_own(identity, config)
    return manifest


def _pull_own(identity: Identity, config: RunConfig) -> None:
    """Fetch a stage that was done elsewhere, where the run has not begun it."""
    if config.storage.uri and not is_begun(config.run_dir / identity.address):
        store = StageStore(config.storage)
        there = store.read_manifest(identity.address)
        if there and there.fingerprint == identity.fingerprint:
            store.pull(identity.address, config.run_dir)


def _push_own(identity: Identity, config: RunConfig) -> None:
    """Send a finished stage, unless it is there."""
    if config.storage.uri:
        StageStore(config.storage).push(config.run_dir, identity.address)


def run_code(stage: Stage, config: RunConfig, folder: StageFolder) -> dict[str, Any]:
    """Run a stage's code in a folder, given what it declares and nothing else; returns the counts of its summary line."""
    return stage.run(config.take(stage.sections), open_inputs(stage, config), folder)


def _fingerprint_code(files: Sequence[Path]) -> dict[str, str]:
    """The user's own modules by what is in them, wherever they lie. What these import is not looked at."""
    found = [artifacts.compute_file_fingerprint(path) for path in files]
    return {artifacts.USER_CODE: artifacts.compute_fingerprint(found)} if found else {}


def _fingerprint_sources(sources: Mapping[str, Path | tuple[Path, ...] | str]) -> dict[str, str]:
    """Fingerprint of what a stage reads from outside the run: by name, size and time of change, cheap for a large collection.
    What is missing is refused where it is opened."""
    states = {key: sorted(_list_source(source)) for key, source in sources.items()}
    return {key: artifacts.compute_fingerprint(found) for key, found in states.items() if found}


def _list_source(source: Path | tuple[Path, ...] | str) -> Iterator[tuple[str, int, int]]:
    if isinstance(source, str):
        yield from ObjectStore(source).list_states()
        return
    for path in source if isinstance(source, tuple) else (source,):
        if path.exists():
            yield from _list_states(path)


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


def _find_version(package: str) -> str:
    """Its version; empty where it is not installed, as what comes with an extra."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _format_count(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)

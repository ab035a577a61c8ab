"""Inputs of a stage: the folders of the stages that it declares, and of no other.

A stage is given its `Inputs` and its own folder. It knows no run folder, so it cannot come to depend on work that its identity
does not name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drag_ray.stage_runs.store import StoredStage
from drag_ray.storage.artifacts import Manifest, read_manifest
from drag_ray.storage.object_store import StorageConfig


@dataclass(frozen=True)
class Inputs:
    """The stages that a stage reads, by their names: the folder of each, None for one that need not have been started."""

    folders: Mapping[str, Path | None]
    _run_dir: Path = field(default=Path(), repr=False)
    _storage: StorageConfig = field(default_factory=StorageConfig, repr=False)

    def __getitem__(self, stage: str) -> Path:
        """The folder of a stage that is always read. KeyError for one that is not declared."""
        folder = self.folders[stage]
        assert folder is not None, f"{stage} need not have been started: use `find`"
        return folder

    def find(self, stage: str) -> Path | None:
        """The folder of a stage that is read if it was started. KeyError for one that is not declared."""
        return self.folders[stage]

    def list_stored(self) -> tuple[StoredStage, ...]:
        """These stages as a store may have them, for who does not see their folders; none where `storage.uri` names no store."""
        if not self._storage.uri:
            return ()
        folders = [folder.resolve() for folder in self.folders.values() if folder]
        found = [(folder, read_manifest(folder)) for folder in folders]
        return tuple(
            StoredStage(folder, manifest.stage, manifest.checksums, self._storage) for folder, manifest in found if manifest
        )

    def read_lineage(self) -> dict[str, Manifest]:
        """The manifests of these stages and of all that they were made from, by name, as long as they still are what was read.
        Raises DamageError where a manifest cannot be read."""
        found: dict[str, Manifest] = {}
        for name, folder in self.folders.items():
            manifest = read_manifest(folder) if folder else None
            if manifest:
                found |= {name: manifest} | self._read_ancestors(manifest)
        return found

    def _read_ancestors(self, manifest: Manifest) -> dict[str, Manifest]:
        found: dict[str, Manifest] = {}
        for name, address in manifest.origin.get("reads", {}).items():
            ancestor = read_manifest(self._run_dir / address)
            if ancestor and ancestor.outcome_fingerprint == manifest.origin["inputs"].get(name):
                found |= {name: ancestor} | self._read_ancestors(ancestor)
        return found

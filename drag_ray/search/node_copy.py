"""An index on a node's own disk: copied there once from storage that nodes share, then mapped by all processes of the node."""

import shutil
from pathlib import Path

from drag_ray.errors import SearchIndexError
from drag_ray.search.index import REBUILD, check_files
from drag_ray.storage import artifacts, checksums
from drag_ray.storage.artifacts import new_folder
from drag_ray.storage.file_access import writing


def copy_to_node(index_dir: Path, node_dir: Path) -> Path:
    """The copy of an index in a folder of this node, made by whoever asks first while others wait.

    It lies under the hash of its list of files, so an index that is built anew gets a copy of its own. Nothing is removed.

    Args:
        index_dir: what `build_index` wrote.
        node_dir: on the node's own disk; made if it is not there.

    Raises:
        SearchIndexError: there is no index, or what came of it is not what was written.
        ArtifactError: the disk refuses.
    """
    from filelock import FileLock

    check_files(index_dir)
    copy = node_dir / artifacts.compute_file_fingerprint(index_dir / checksums.LIST_NAME)
    with writing(node_dir):
        node_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(node_dir / f".lock-{copy.name}"):
            if not copy.is_dir():
                _copy(index_dir, copy)
    return copy


def _copy(index_dir: Path, copy: Path) -> None:
    with new_folder(copy, "") as scratch:
        shutil.copytree(index_dir, scratch, dirs_exist_ok=True)
        listed = checksums.parse_list((scratch / checksums.LIST_NAME).read_text(encoding="utf-8"))
        damage = checksums.find_damage(scratch, listed, whole=True)
        if damage:
            raise SearchIndexError(f"{index_dir}: damaged, or on its way here: {checksums.describe_damage(damage)}. {REBUILD}")

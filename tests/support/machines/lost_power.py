"""States of a disk after a loss of power: a record of what a process writes, and the states that could be left of it.

A file's content is on the disk when the file was synced after it was written, and a name when its folder was. Of what was not,
anything may be there: files with all, half or none of their bytes, and new, removed or renamed names in any selection.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

Names = dict[int, dict[str, int]]
"""The inodes of the names in a folder, by the inode of the folder."""
_CALLS = ("fsync", "replace", "rename", "mkdir", "unlink", "truncate")


@dataclass(frozen=True)
class State:
    """Files at a moment, as programs see them and as they are surely on the disk."""

    root: int
    seen: Names
    contents: dict[int, bytes]
    synced: Names
    synced_contents: dict[int, bytes]


def record_states(root: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[State]:
    """The states of the files below `root` before and after each sync, rename and removal; what is there at first is synced."""
    with ExitStack() as kept_open:
        recorder = _Recorder(root, kept_open)
        with monkeypatch.context() as patch:
            for name in _CALLS:
                patch.setattr(os, name, recorder.wrap(name, getattr(os, name)))
            act()
        return recorder.states


class _Recorder:
    def __init__(self, root: Path, kept_open: ExitStack) -> None:
        self._root = root
        self._kept_open = kept_open
        self._known = set[int]()
        seen, contents = self._look()
        self.states = [State(root.stat().st_ino, seen, contents, seen, contents)]

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: Any, *args: Any, **options: Any) -> Any:
            self._note()
            result = function(target, *args, **options)
            self._note(os.fstat(target).st_ino if name == "fsync" else None)
            return result

        return call

    def _note(self, synced: int | None = None) -> None:
        seen, contents = self._look()
        state = replace(self.states[-1], seen=seen, contents=contents)
        if synced in contents:
            state = replace(state, synced_contents={**state.synced_contents, synced: contents[synced]})
        elif synced in seen:
            state = replace(state, synced={**state.synced, synced: seen[synced]})
        self.states.append(state)

    def _look(self) -> tuple[Names, dict[int, bytes]]:
        names: Names = {}
        contents: dict[int, bytes] = {}
        for folder, subfolders, files in os.walk(self._root):
            inodes = {name: self._identify(Path(folder, name)) for name in (*subfolders, *files)}
            contents |= {inodes[name]: Path(folder, name).read_bytes() for name in files}
            names[Path(folder).stat().st_ino] = inodes
        return names, contents

    def _identify(self, path: Path) -> int:
        """The inode, which no other file gets from now on."""
        inode = path.stat().st_ino
        if inode not in self._known:
            self._known.add(inode)
            self._kept_open.callback(os.close, os.open(path, os.O_RDONLY))
        return inode


def list_losses(states: list[State], num_random: int, seed: int = 0) -> Iterator[tuple[int, Callable[[Path], None]]]:
    """(number of the state, a function that writes what is left of it into a folder), where of what was not synced nothing is
    there, all, each name alone in folders that are, or some at random."""
    rng = random.Random(seed)
    for number, state in enumerate(states):
        changes = _list_changes(state)
        folders = {(folder, name) for folder, name in changes if state.seen.get(folder, {}).get(name) in state.seen}
        choices = [set[tuple[int, str]](), set(changes), *(folders | {change} for change in changes)]
        choices += [set(rng.sample(changes, rng.randint(0, len(changes)))) for _ in range(num_random if changes else 0)]
        for kept in choices:
            for keep_bytes in (0.0, 0.5, 1.0):
                yield number, lambda folder, state=state, kept=kept, part=keep_bytes: _write(state, kept, part, folder)


def _list_changes(state: State) -> list[tuple[int, str]]:
    """The names, with their folders, that are seen otherwise than they are surely on the disk."""
    return [
        (folder, name)
        for folder in sorted(state.seen.keys() | state.synced.keys())
        for name in sorted(state.seen.get(folder, {}).keys() | state.synced.get(folder, {}).keys())
        if state.seen.get(folder, {}).get(name) != state.synced.get(folder, {}).get(name)
    ]


def _write(state: State, kept: set[tuple[int, str]], part: float, root: Path) -> None:
    """The files with the kept changes of names, and with part of the bytes that were not synced."""
    shutil.rmtree(root, ignore_errors=True)
    places = [(root, state.root)]
    for place, folder in places:
        place.mkdir()
        synced, seen = state.synced.get(folder, {}), state.seen.get(folder, {})
        for name in synced.keys() | seen.keys():
            inode = (seen if (folder, name) in kept else synced).get(name)
            if inode in state.contents or inode in state.synced_contents:
                (place / name).write_bytes(_choose_bytes(state, inode, part))
            elif inode is not None:
                places.append((place / name, inode))


def _choose_bytes(state: State, inode: int, part: float) -> bytes:
    surely, seen = state.synced_contents.get(inode), state.contents.get(inode)
    if seen is None or (surely is not None and part < 1):
        assert surely is not None
        return surely
    return seen[: int(len(seen) * part)]

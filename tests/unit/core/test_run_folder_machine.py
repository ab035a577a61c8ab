"""The folder of a stage under any sequence of what happens to it: runs that end or not, other options, damage, acceptance."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drag_ray.errors import ArtifactError, DamageError
from drag_ray.stage_runs.damage import accept_changes, find_damage, refuse_damage
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity

pytestmark = pytest.mark.seconds

_NAMES = st.sampled_from(["a", "rows/b", "rows/deep/c"])


class RunFolder(RuleBasedStateMachine):
    """Beside the folder, what should be in it: whose work, what files, whether it has finished, and which files are damaged."""

    def __init__(self) -> None:
        super().__init__()
        self.run_dir = Path(tempfile.mkdtemp())
        self.path = self.run_dir / "collect"
        self.owner: int | None = None
        self.files: dict[str, str] = {}
        self.is_finished = False
        self.damaged = set[str]()
        self.num_harmed = 0
        self.kept: list[dict[str, str]] = []
        """The files of works that are to be in `_previous`."""

    def teardown(self) -> None:
        shutil.rmtree(self.run_dir)

    @rule(value=st.integers(1, 2), names=st.lists(_NAMES, unique=True), ends=st.booleans(), repairs_in_place=st.booleans())
    def run(self, value: int, names: list[str], ends: bool, repairs_in_place: bool) -> None:
        identity = Identity("collect", {"value": value}, {})
        found = find_damage(self.path) if value == self.owner else []
        assert {damage.path for damage in found} == (self.damaged if value == self.owner else set())
        folder = StageFolder(self.path, identity, found, repairs_in_place)
        was_own = value == self.owner
        assert folder.is_finished() == (was_own and self.is_finished and not self.damaged)
        if folder.is_finished():
            return  # as pipelines skip it
        self._expect_entry(value, repairs_in_place)
        with folder:
            assert folder.resumed == (was_own and (repairs_in_place or not found))
            for name in names:
                artifacts.write_text(self.path / name, f"{value}{name}")
                self.files[name] = f"{value}{name}"
            if ends:
                folder.finish({})
                self.is_finished = True

    def _expect_entry(self, value: int, repairs_in_place: bool) -> None:
        if value == self.owner and self.damaged and repairs_in_place:
            there = {name: text for name, text in self.files.items() if name in self.damaged and text}
            self.kept.append(there)
            self.files = {name: text for name, text in self.files.items() if name not in self.damaged}
        elif self.owner is not None and (value != self.owner or self.damaged):
            self.kept.append({name: text for name, text in self.files.items() if text})
            self.files = {}
        self.owner, self.is_finished, self.damaged = value, False, set()

    @precondition(lambda self: self.is_finished and self.files)
    @rule(data=st.data(), is_lost=st.booleans())
    def harm(self, data: st.DataObject, is_lost: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.files)))
        if is_lost:
            (self.path / name).unlink(missing_ok=True)
            self.files[name] = ""
        else:
            # Never twice the same: what was harmed and accepted, and is written again as it is, is not damaged.
            self.num_harmed += 1
            self.files[name] = f"harmed {self.num_harmed}"
            (self.path / name).write_text(self.files[name])
        self.damaged.add(name)

    @precondition(lambda self: self.is_finished)
    @rule()
    def accept(self) -> None:
        assert {change.path for change in accept_changes(self.path)} == self.damaged
        self.files = {name: text for name, text in self.files.items() if text}
        self.damaged = set()

    @precondition(lambda self: self.owner is not None)
    @rule()
    def two_at_once(self) -> None:
        identity = Identity("collect", {"value": self.owner}, {})
        if self.is_finished:
            return
        self._expect_entry(self.owner or 0, repairs_in_place=False)
        with StageFolder(self.path, identity), pytest.raises(ArtifactError, match="another run is writing"):
            StageFolder(self.path, identity).__enter__()

    @invariant()
    def what_is_there_is_known(self) -> None:
        for name, text in self.files.items():
            assert (self.path / name).exists() == bool(text)
            assert not text or (self.path / name).read_text() == text
        if not self.path.exists():
            return
        assert (artifacts.read_manifest(self.path) is not None) == self.is_finished
        if self.damaged:
            with pytest.raises(DamageError):
                refuse_damage(self.path)
        else:
            refuse_damage(self.path, whole=True)

    @invariant()
    def nothing_is_lost(self) -> None:
        previous = self.run_dir / "_previous"
        works = [
            {name: (work / name).read_text() for name in ("a", "rows/b", "rows/deep/c") if (work / name).exists()}
            for work in (previous.iterdir() if previous.exists() else ())
        ]
        for work in self.kept:
            if work:
                assert work in works


TestRunFolder = RunFolder.TestCase
TestRunFolder.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)

"""Images of tools that are gone or damaged: their rollouts run again, and no others."""

import dataclasses
import json
from pathlib import Path

import pytest
from factories import build_answer, build_call, build_trajectory
from PIL import Image

from drag_ray.corpus.image_store import ImageStore
from drag_ray.rollout import journal
from drag_ray.rollout.journal import drop_rollouts_without_images
from drag_ray.types import Trajectory

COLORS = ("red", "green", "blue")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Three rollouts in two files: the images of the first and the second are the run's, that of the third is the index's."""
    run_dir = tmp_path / "collect"
    journal.begin_attempt(run_dir)
    stores = (run_dir / "images", run_dir / "images", tmp_path / "page_images")
    written = journal.Journal(run_dir, flush_s=1000)
    for number, (root, color) in enumerate(zip(stores, COLORS, strict=True)):
        written.add(show(ImageStore(root).write(Image.new("RGB", (40, 30), color)), f"q{number}"))
        if number:
            written.flush()
    return run_dir


def show(key: str, rollout_id: str) -> Trajectory:
    """A rollout whose first call has shown an image, and a text that looks like another."""
    trajectory = build_trajectory(build_call("crop"), build_answer(), id=rollout_id)
    messages = json.loads(trajectory.messages)
    told = {"type": "text", "text": 'Seen: "image": "ab/gone.jpg"'}
    messages[3] = {"role": "tool", "content": [told, {"type": "image", "image": key}]}
    return dataclasses.replace(trajectory, messages=json.dumps(messages))


def find_image(run_dir: Path, color: str) -> Path:
    key = ImageStore(run_dir.parent / "other").write(Image.new("RGB", (40, 30), color))
    return run_dir / "images" / key


def test_where_all_images_are_there_nothing_is_dropped(run_dir: Path) -> None:
    files = journal.list_files(run_dir, "trajectories")
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 0
    assert journal.list_files(run_dir, "trajectories") == files


@pytest.mark.parametrize("is_removed", [True, False])
def test_the_rollout_of_a_lost_or_damaged_image_has_not_finished(run_dir: Path, is_removed: bool) -> None:
    path = find_image(run_dir, "green")
    whole = path.read_bytes()
    path.unlink() if is_removed else path.write_bytes(whole[:-1] + b"x")
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 1
    assert journal.read_finished_ids(run_dir) == {"q0", "q2"}
    assert (run_dir / "corrupt" / path.name).exists() is not is_removed
    # What the rollout writes when it runs again is there, and nothing is dropped another time.
    assert ImageStore(run_dir / "images").write(Image.new("RGB", (40, 30), "green")) in path.as_posix()
    assert path.read_bytes() == whole
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 0


def test_the_whole_store_of_a_run_can_be_lost(run_dir: Path) -> None:
    for color in COLORS[:2]:
        find_image(run_dir, color).unlink()
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 2
    assert journal.read_finished_ids(run_dir) == {"q2"}


@pytest.mark.parametrize("key", ["../../outside.jpg", "/etc/passwd"])
def test_a_key_that_is_none_moves_nothing(run_dir: Path, key: str) -> None:
    outside = run_dir.parent / "outside.jpg"
    outside.write_bytes(b"mine")
    written = journal.Journal(run_dir, flush_s=1000)
    written.add(show(key, "q9"))
    written.flush()
    assert drop_rollouts_without_images(run_dir, [run_dir.parent / "page_images"]) == 1
    assert outside.read_bytes() == b"mine"

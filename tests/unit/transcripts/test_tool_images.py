"""What tools showed, where a user looks: the page for the browser, a notebook, the terminal."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from factories import build_answer, build_call, build_trajectory
from PIL import Image
from transcript_cases import SCRIPT, write

from drag_ray.corpus.image_store import ImageStore
from drag_ray.transcripts import transcript as transcript_module
from drag_ray.transcripts.listing import Selection
from drag_ray.transcripts.show import read_transcripts, write_page
from drag_ray.transcripts.terminal import Terminal
from drag_ray.transcripts.thumbnails import open_thumbnails
from drag_ray.types import Trajectory

LABEL = f'image_1: manual.pdf#7 {SCRIPT}"onload="alert(1)'


def show(trajectory: Trajectory, *keys: object) -> Trajectory:
    """The rollout, whose first call has shown these images."""
    messages = json.loads(trajectory.messages)
    parts = [part for key in keys for part in ({"type": "text", "text": f"\n\n{LABEL}\n"}, {"type": "image", "image": key})]
    messages[3] = {"role": "tool", "content": [{"type": "text", "text": "Cut out."}, *parts]}
    return dataclasses.replace(trajectory, id="q7/default/0", messages=json.dumps(messages))


@pytest.fixture
def keys(run_dir: Path) -> list[str]:
    """A call showed two images, of which the first was of a page; its rollout is in the run."""
    pictures = [(run_dir / "index" / "page_images", "red"), (run_dir / "collect" / "images", "green")]
    keys = [ImageStore(root).write(Image.new("RGB", (600, 800), color)) for root, color in pictures]
    write(run_dir / "collect" / "trajectories" / "9.parquet", show(build_trajectory(build_call("crop"), build_answer()), *keys))
    return keys


def read_pictures(html: str) -> dict[str, str]:
    [text] = re.findall(r'<script type="application/json" id="pictures">(.*?)</script>', html)
    return json.loads(text)


def test_the_page_shows_what_a_tool_returned_with_its_name_and_its_file(run_dir: Path, keys: list[str]) -> None:
    write_page(run_dir, Selection(id="q7"), run_dir / "page.html")
    html = (run_dir / "page.html").read_text()
    assert set(keys) <= set(read_pictures(html))
    assert f'href="collect/images/{keys[1]}"' in html
    assert html.count("<script") == 2
    assert '"onload="' not in html


def test_a_notebook_shows_small_pictures_within_its_bytes(
    run_dir: Path, keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    [transcript] = read_transcripts(run_dir, Selection(id="q7"))
    html = transcript._repr_html_()
    assert html.count('src="data:image/jpeg;base64,') == 3  # that of the page as its evidence, too
    assert "<script" not in html
    assert '"onload="' not in html
    monkeypatch.setattr(transcript_module, "_NOTEBOOK_BYTES", 10)
    assert "src=" not in transcript._repr_html_()


def test_the_terminal_names_the_files(run_dir: Path, keys: list[str]) -> None:
    [transcript] = read_transcripts(run_dir / "collect", Selection(id="q7"))
    lines = Terminal(use_color=False, width=100).format_transcript(transcript).splitlines()
    assert [line.strip() for line in lines if ".jpg" in line] == keys


@pytest.mark.parametrize("key", ["../../secret.jpg", "/etc/passwd", "ab/" + 32 * "c" + ".jpg", 5, ["x"]])
def test_a_key_that_is_none_of_the_run_shows_nothing(run_dir: Path, key: object) -> None:
    (run_dir.parent / "secret.jpg").write_bytes(b"secret")
    write(run_dir / "collect" / "trajectories" / "9.parquet", show(build_trajectory(build_call("crop"), build_answer()), key))
    write_page(run_dir, Selection(id="q7"), run_dir / "page.html")
    html = (run_dir / "page.html").read_text()
    assert len(read_pictures(html)) == 1  # of the evidence
    assert "not in the stores of this run" in html
    [transcript] = read_transcripts(run_dir, Selection(id="q7"))
    assert transcript._repr_html_().count("src=") == 1


def test_the_stores_are_those_of_the_run_and_none_beside_it(run_dir: Path, keys: list[str]) -> None:
    elsewhere = ImageStore(run_dir.parent / "images").write(Image.new("RGB", (60, 80), "blue"))
    for path in (run_dir, run_dir / "collect", run_dir / "collect" / "trajectories" / "9.parquet"):
        assert set(open_thumbnails(path).locate([*keys, elsewhere], run_dir)) == set(keys)

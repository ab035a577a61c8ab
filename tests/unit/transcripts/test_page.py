"""The page of transcripts for a browser, and what tools showed, on it, in a notebook and in the terminal."""

import base64
import dataclasses
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from factories import build_answer, build_call, build_trajectory, change, write_trajectories
from PIL import Image
from transcript_cases import FOUND, MISSED, SCRIPT

from drag_ray.corpus.image_store import ImageStore
from drag_ray.errors import DataError
from drag_ray.transcripts import show as page_module
from drag_ray.transcripts import transcript as transcript_module
from drag_ray.transcripts.listing import Selection, read_listing
from drag_ray.transcripts.show import Terminal, read_transcripts, write_page
from drag_ray.transcripts.thumbnails import open_thumbnails
from drag_ray.types import Trajectory


class Page(HTMLParser):
    """The tags with their attributes, and the text of a page, scripts apart."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script":
            self.scripts.append(data)
        self.text += data

    def find(self, tag: str, **attributes: str) -> list[dict[str, Any]]:
        return [found for name, found in self.tags if name == tag and attributes.items() <= found.items()]


@pytest.fixture
def html(run_dir: Path) -> str:
    assert write_page(run_dir, Selection(), run_dir / "page.html") == 4
    return (run_dir / "page.html").read_text()


def read_pictures(html: str) -> dict[str, str]:
    [text] = re.findall(r'<script type="application/json" id="pictures">(.*?)</script>', html)
    return json.loads(text)


def test_the_page_is_text_of_models_closed_and_needs_nothing_beside_itself(html: str) -> None:
    page = Page(html)
    assert len(page.find("script")) == 2  # the pictures and the page's own
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    assert page.text.count(SCRIPT) >= 3  # the reply, what it says and the answer
    assert not any("alert" in script for script in page.scripts)
    assert not [attributes for _, attributes in page.tags if "src" in attributes]
    assert not page.find("link")
    assert {link["href"].split("/")[0] for link in page.find("a")} == {"index"}
    assert "@import" not in html
    assert "http" not in html
    assert all(uri.startswith("data:image/jpeg;base64,") for uri in read_pictures(html).values())
    for tag in ("details", "ol", "li", "p", "pre", "span", "a", "div", "summary"):
        assert html.count(f"</{tag}>") == len(Page(html).find(tag)), tag


def test_transcripts_are_chosen_by_their_outcome_and_the_evidence_is_marked(html: str) -> None:
    cards = [card for card in Page(html).find("details") if "transcript" in card["class"]]
    assert [card["data-outcome"] for card in cards] == ["found", "found", "errors", "not-found"]
    assert not any("open" in card for card in cards)
    marked = Page(html).find("li", **{"class": "evidence"})
    # once as the evidence of each of four trajectories, and where two of them found it
    assert [item.get("value") for item in marked] == [None, "2", None, "1", None, None]


def test_pictures_are_small_and_their_files_are_named(html: str, run_dir: Path) -> None:
    page, pictures = Page(html), read_pictures(html)
    shown = {image["data-picture"] for image in page.find("img")}
    assert shown == set(pictures)
    assert len(shown) == 2  # each once, wherever its page was found
    for uri in pictures.values():
        image = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
        assert image.size == (240, 320)
    for link in page.find("a"):
        assert (run_dir / link["href"]).is_file()
        assert link["title"] == link["href"]


def test_a_picture_whose_file_is_lost_or_damaged_is_shown_as_missing(run_dir: Path) -> None:
    first, second = sorted((run_dir / "index" / "page_images").rglob("*.jpg"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:200])
    write_page(run_dir, Selection(), run_dir / "page.html")
    html = (run_dir / "page.html").read_text()
    assert read_pictures(html) == {}
    assert f"no picture here: index/page_images/{first.parent.name}/{first.name}" in Page(html).text


def test_pictures_give_way_to_the_size_of_the_page_and_a_folder_is_no_file_to_write(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_page(run_dir, Selection(), run_dir / "page.html")
    whole = (run_dir / "page.html").stat().st_size
    monkeypatch.setattr(page_module, "MAX_BYTES", whole - 1)
    write_page(run_dir, Selection(), run_dir / "page.html")
    html = (run_dir / "page.html").read_text()
    assert len(read_pictures(html)) == 1
    assert len(html.encode()) < whole
    monkeypatch.setattr(page_module, "MAX_BYTES", 1000)
    with pytest.raises(DataError, match="Ask for fewer with --limit"):
        write_page(run_dir, Selection(), run_dir / "page.html")
    with pytest.raises(DataError, match="is a folder"):
        write_page(run_dir, Selection(), run_dir)


def test_without_an_index_there_are_no_pictures(run_dir: Path, tmp_path: Path) -> None:
    lone = tmp_path / "elsewhere" / "lone.parquet"
    lone.parent.mkdir()
    (run_dir / "collect" / "trajectories" / "1.parquet").rename(lone)
    assert write_page(lone, Selection(limit=1), tmp_path / "page.html") == 1
    page = Page((tmp_path / "page.html").read_text())
    assert not page.find("img")
    assert "1 of 2 trajectories below" in page.text
    assert FOUND.question in page.text
    assert "open" in page.find("details")[0]  # a single one is there to be read


def test_hinted_rollouts_are_no_success_of_the_policy(run_dir: Path) -> None:
    write_trajectories(
        run_dir / "collect" / "trajectories" / "4.parquet", [change(MISSED, id="q2/default/0/hinted", hinted=True)]
    )
    figures = {label: (value, remark) for value, label, remark in page_module.list_figures(read_listing(run_dir))}
    assert figures["trajectories"] == ("4", "3 questions, 1 hinted apart")
    assert figures["found"] == ("50%", "2 trajectories")
    assert figures["failed"] == ("1", "25% of them")
    assert figures["turns each"] == ("1.5", "4 searches")
    assert figures["median best rank"] == ("2", "2 within depth")
    assert figures["tokens a reply"] == ("2", "3.0 s a trajectory")


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
    write_trajectories(
        run_dir / "collect" / "trajectories" / "9.parquet", [show(build_trajectory(build_call("crop"), build_answer()), *keys)]
    )
    return keys


def test_what_a_tool_returned_is_shown_with_its_name_and_file_everywhere(run_dir: Path, keys: list[str]) -> None:
    write_page(run_dir, Selection(id="q7"), run_dir / "page.html")
    html = (run_dir / "page.html").read_text()
    assert set(keys) <= set(read_pictures(html))
    assert f'href="collect/images/{keys[1]}"' in html
    assert html.count("<script") == 2
    assert '"onload="' not in html
    [transcript] = read_transcripts(run_dir / "collect", Selection(id="q7"))
    lines = Terminal(use_color=False, width=100).format_transcript(transcript).splitlines()
    assert [line.strip() for line in lines if ".jpg" in line] == keys
    elsewhere = ImageStore(run_dir.parent / "images").write(Image.new("RGB", (60, 80), "blue"))
    for path in (run_dir, run_dir / "collect", run_dir / "collect" / "trajectories" / "9.parquet"):
        assert set(open_thumbnails(path).locate([*keys, elsewhere], run_dir)) == set(keys)


def test_a_notebook_shows_small_pictures_within_limits(run_dir: Path, keys: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    [transcript] = read_transcripts(run_dir, Selection(id="q7"))
    html = transcript._repr_html_()
    assert html.count('src="data:image/jpeg;base64,') == 3  # that of the page as its evidence, too
    assert "<script" not in html
    assert '"onload="' not in html
    monkeypatch.setattr(transcript_module, "_NOTEBOOK_BYTES", 10)
    assert "src=" not in transcript._repr_html_()


@pytest.mark.parametrize("key", ["../../secret.jpg", "/etc/passwd", "ab/" + 32 * "c" + ".jpg", 5, ["x"]])
def test_a_key_that_is_none_of_the_run_shows_nothing(run_dir: Path, key: object) -> None:
    (run_dir.parent / "secret.jpg").write_bytes(b"secret")
    write_trajectories(
        run_dir / "collect" / "trajectories" / "9.parquet", [show(build_trajectory(build_call("crop"), build_answer()), key)]
    )
    write_page(run_dir, Selection(id="q7"), run_dir / "page.html")
    html = (run_dir / "page.html").read_text()
    assert len(read_pictures(html)) == 1  # of the evidence
    assert "not in the stores of this run" in html
    [transcript] = read_transcripts(run_dir, Selection(id="q7"))
    assert transcript._repr_html_().count("src=") == 1

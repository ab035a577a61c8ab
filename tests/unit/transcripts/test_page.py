import base64
import dataclasses
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from transcript_cases import FOUND, MISSED, SCRIPT, write

from drag_ray.errors import DataError
from drag_ray.transcripts import show as page_module
from drag_ray.transcripts.listing import Selection, read_listing
from drag_ray.transcripts.show import write_page


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


def test_text_of_models_is_text(html: str) -> None:
    page = Page(html)
    assert len(page.find("script")) == 2  # the pictures and the page's own
    assert not [attributes for _, attributes in page.tags if any(name.startswith("on") for name in attributes)]
    assert page.text.count(SCRIPT) >= 3  # the reply, what it says and the answer
    assert not any("alert" in script for script in page.scripts)


def test_the_page_needs_nothing_beside_itself(html: str) -> None:
    page = Page(html)
    assert not [attributes for _, attributes in page.tags if "src" in attributes]
    assert not page.find("link")
    assert {link["href"].split("/")[0] for link in page.find("a")} == {"index"}
    assert "@import" not in html
    assert "http" not in html
    assert all(uri.startswith("data:image/jpeg;base64,") for uri in read_pictures(html).values())


def test_every_tag_is_closed(html: str) -> None:
    for tag in ("details", "ol", "li", "p", "pre", "span", "a", "div", "summary"):
        assert html.count(f"</{tag}>") == len(Page(html).find(tag)), tag


def test_each_transcript_can_be_unfolded_and_chosen_by_its_outcome(html: str) -> None:
    cards = [card for card in Page(html).find("details") if "transcript" in card["class"]]
    assert [card["data-outcome"] for card in cards] == ["found", "found", "errors", "not-found"]
    assert not any("open" in card for card in cards)


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


def test_the_evidence_is_marked_where_it_was_found(html: str) -> None:
    marked = Page(html).find("li", **{"class": "evidence"})
    # once as the evidence of each of four trajectories, and where two of them found it
    assert [item.get("value") for item in marked] == [None, "2", None, "1", None, None]


def test_a_picture_whose_file_is_lost_or_damaged_is_shown_as_missing(run_dir: Path) -> None:
    first, second = sorted((run_dir / "index" / "page_images").rglob("*.jpg"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:200])
    write_page(run_dir, Selection(), run_dir / "page.html")
    html = (run_dir / "page.html").read_text()
    assert read_pictures(html) == {}
    assert f"no picture here: index/page_images/{first.parent.name}/{first.name}" in Page(html).text


def test_pictures_give_way_to_the_size_of_the_page(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    write(run_dir / "collect" / "trajectories" / "4.parquet", dataclasses.replace(MISSED, id="q2/default/0/hinted", hinted=True))
    figures = {label: (value, remark) for value, label, remark in page_module.list_figures(read_listing(run_dir))}
    assert figures["trajectories"] == ("4", "3 questions, 1 hinted apart")
    assert figures["found"] == ("50%", "2 trajectories")
    assert figures["failed"] == ("1", "25% of them")
    assert figures["turns each"] == ("1.5", "4 searches")
    assert figures["median best rank"] == ("2", "2 within depth")
    assert figures["tokens a reply"] == ("2", "3.0 s a trajectory")


def test_a_folder_is_no_file_to_write(run_dir: Path) -> None:
    with pytest.raises(DataError, match="is a folder"):
        write_page(run_dir, Selection(), run_dir)

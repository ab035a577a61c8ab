"""The page on which a person looks at questions: who is let in, what it shows, and what it keeps."""

import io
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from factories import build_page
from PIL import Image
from reportlab.pdfgen.canvas import Canvas
from small_index import write_index
from starlette.testclient import TestClient

from drag_ray.corpus.image_store import ImageStore, encode
from drag_ray.corpus.verdicts import read_verdicts
from drag_ray.errors import ServeError
from drag_ray.questions.drafts import Draft
from drag_ray.questions.review import ReviewItem
from drag_ray.serve.review import Review, build_app, serve_review
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Question

KEY = "a key of a test"
QUESTION = Draft("q1", "fact", "a.pdf", 1, "Where is the fuel kept?", "in the wings").to_question()
TEXT = "The fuel is kept in the wings."


def open_review(run_dir: Path, *questions: Question) -> Review:
    """A review over a PDF with one page, and a text that has no picture."""
    documents = run_dir / "documents"
    documents.mkdir(exist_ok=True)
    canvas = Canvas(str(documents / "a.pdf"))
    canvas.drawString(72, 720, TEXT)
    canvas.save()
    if not (run_dir / "index").exists():
        with StageFolder(run_dir / "index", Identity("index", {"corpus": {"documents": str(documents)}}, {})) as folder:
            write_index(folder.path, [build_page(file=name, page_number=1, text=TEXT) for name in ("a.pdf", "b.txt")], [])
            folder.finish({})
    return Review(run_dir, [ReviewItem(question) for question in questions or (QUESTION,)])


def open_client(review: Review) -> TestClient:
    return TestClient(build_app(review, KEY), base_url="http://127.0.0.1:8010", client=("127.0.0.1", 50000))


@pytest.fixture
def review(tmp_path: Path) -> Review:
    return open_review(tmp_path, QUESTION, replace(QUESTION, id="q2", evidence=(replace(QUESTION.evidence[0], file="b.txt"),)))


@pytest.fixture
def client(review: Review) -> TestClient:
    client = open_client(review)
    answer = client.get("/", params={"key": KEY}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict"} <= set(answer.headers["set-cookie"].split("; "))
    return client


@pytest.mark.seconds
def test_the_page_has_the_questions_their_pages_and_the_verdicts(client: TestClient, review: Review) -> None:
    page = client.get("/")
    nonce = page.headers["content-security-policy"].partition("'nonce-")[2].partition("'")[0]
    assert f'<script nonce="{nonce}">' in page.text
    assert page.headers["cache-control"] == "no-store"
    first, _ = client.get("/questions").json()
    assert (first["question"], first["answer"], first["pages"], first["verdict"]) == (
        *("Where is the fuel kept?", "in the wings"),
        *(["a.pdf, page 1"], ""),
    )
    assert client.get("/questions/0/pages/0.txt").text == TEXT
    picture = client.get("/questions/0/pages/0.jpg")
    assert picture.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(picture.content)).height > 1000
    missing = client.get("/questions/1/pages/0.jpg")
    assert (missing.status_code, missing.text) == (404, "b.txt: there is no picture of its pages. See corpus.page_images.")


def test_the_image_of_a_question_is_shown_before_its_pages(tmp_path: Path) -> None:
    key, _ = encode(picture := Image.new("RGB", (40, 30)))
    review = open_review(tmp_path, replace(QUESTION, images=(key,)))
    ImageStore(tmp_path / "index" / "page_images").write(picture)
    [shown] = review.list_questions()
    assert shown["pages"] == ["image_1", "a.pdf, page 1"]
    pages = [review.read_page(0, number) for number in range(2)]
    assert [page.text for page in pages] == ["", TEXT]
    assert Image.open(io.BytesIO(review.draw_page(pages[0]))).size == (40, 30)


def test_a_verdict_is_on_the_disk_at_once_and_the_next_one_on_it_counts(client: TestClient, review: Review) -> None:
    edited = {"id": "q1", "asked": "", "verdict": "edit", "question": "Where are the tanks?", "answer": "in the wings"}
    assert "1 of 2 seen" in client.post("/questions/0/verdict", json=edited).text
    assert stat.S_IMODE(review.path.parent.stat().st_mode) == 0o700
    said = read_verdicts(review.path)["q1"]
    assert (said.verdict, said.asked, said.question) == ("edit", QUESTION.question, "Where are the tanks?")
    again = Review(review.path.parents[1], review.items).list_questions()[0]
    assert (again["question"], again["asked"], again["verdict"]) == ("Where are the tanks?", QUESTION.question, "edit")
    client.post("/questions/0/verdict", json={"id": "q1", "asked": "", "verdict": "keep"})
    again = Review(review.path.parents[1], review.items).list_questions()[0]
    assert (again["question"], again["verdict"]) == (QUESTION.question, "keep")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/questions/0/verdict", b'{"id": "q2", "asked": "", "verdict": "keep"}', 404),
        ("/questions/7/verdict", b'{"id": "q1", "asked": "", "verdict": "keep"}', 404),
        ("/questions/0/verdict", b'{"id": "q1", "asked": "", "verdict": "edit", "question": " "}', 404),
        ("/questions/0/verdict", b'{"id": "q1", "asked": "", "verdict": "perhaps"}', 400),
        ("/questions/0/verdict", b"\xff", 400),
        ("/questions/0/verdict", b" " * 200_000, 413),
    ],
)
def test_what_is_no_verdict_on_the_question_is_refused_and_nothing_kept(
    client: TestClient, review: Review, path: str, body: bytes, status: int
) -> None:
    assert client.post(path, content=body).status_code == status
    assert not review.path.exists()
    assert client.get("/questions/0/pages/9.txt").status_code == client.get("/questions/9/pages/0.jpg").status_code == 404


def test_who_has_no_key_comes_from_elsewhere_or_from_another_page_is_not_answered(review: Review, client: TestClient) -> None:
    stranger = open_client(review)
    assert [stranger.get(path).status_code for path in ("/", "/questions", "/?key=wrong", "/questions/0/pages/0.txt")] == [
        403
    ] * 4
    body = {"id": "q1", "asked": "", "verdict": "drop"}
    for headers in ({"Origin": "http://127.0.0.1:9999"}, {"Origin": "null"}, {"Host": "evil.example"}):
        assert client.post("/questions/0/verdict", json=body, headers=headers).status_code == 403
    far = TestClient(build_app(review, KEY), base_url="http://127.0.0.1:8010", client=("192.0.2.1", 50000))
    assert far.get("/", params={"key": KEY}).status_code == 403
    assert not review.path.exists()


def test_a_page_that_lies_outside_the_documents_is_not_drawn(tmp_path: Path) -> None:
    review = open_review(tmp_path)
    outside = tmp_path / "outside.pdf"
    Canvas(str(outside)).save()
    (tmp_path / "documents" / "link.pdf").symlink_to(outside)
    for name in ("../outside.pdf", str(outside), "link.pdf"):
        with pytest.raises(Exception, match="there is no picture of its pages"):
            review.draw_page(build_page(file=name, page_number=1))


def test_a_verdict_that_cannot_be_written_is_not_shown_as_kept(client: TestClient, review: Review) -> None:
    review.path.parent.write_text("a file where the folder is to be")
    assert client.post("/questions/0/verdict", json={"id": "q1", "asked": "", "verdict": "keep"}).status_code == 500
    assert review.list_questions()[0]["verdict"] == ""


@pytest.mark.parametrize("port", [99_999, -1])
def test_a_number_that_is_no_port_is_said(review: Review, port: int) -> None:
    with pytest.raises(ServeError, match=f"port {port} of 127.0.0.1 cannot be used"):
        serve_review(review, port)

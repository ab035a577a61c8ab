import hashlib
from pathlib import Path

from evaluation_cases import build_questions, build_rollouts
from factories import build_page
from PIL import Image

from drag_ray import schemas
from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.evaluate.measure import CRITERIA
from drag_ray.evaluate.report.examples import Outcome, choose_examples, draw_pictures
from drag_ray.evaluate.results import compute_results
from drag_ray.storage import artifacts
from drag_ray.transcripts.thumbnails import ThumbnailStore
from drag_ray.types import Evidence

RANKS = {"base": [1, 2, None, 4, None, 3, 1, None], "tuned": [2, 1, 3, 4, None, None, 1, 1]}


def choose(num_each, without=""):
    rollouts = build_rollouts(RANKS)
    rollouts["tuned"] = [rollout for rollout in rollouts["tuned"] if rollout.question_id != without]
    return choose_examples(
        rollouts, compute_results(rollouts, build_questions(8)), CRITERIA["ranking"], "base", "tuned", num_each
    )


def test_every_question_has_an_outcome_and_all_outcomes_are_shown():
    examples = choose(8)
    found = {outcome: {e.question_id for e in examples.shown if e.outcome is outcome} for outcome in Outcome}
    assert found == {
        Outcome.WON: {"q1", "q2", "q7"},
        Outcome.LOST: {"q0", "q5"},
        Outcome.BOTH_FAILED: {"q4"},
        Outcome.EVEN: {"q3", "q6"},
    }
    assert choose(1).counts == {outcome: len(ids) for outcome, ids in found.items()}
    assert len(choose(1).shown) == 4


def test_the_choice_follows_the_hash_of_the_id_and_not_the_size_of_the_change():
    expected = min(("q1", "q2", "q7"), key=lambda id: hashlib.sha256(id.encode()).digest())
    assert [e.question_id for e in choose(1).shown if e.outcome is Outcome.WON] == [expected]


def test_both_sides_hold_what_their_policy_did():
    [example] = [e for e in choose(8).shown if e.question_id == "q2"]
    assert [(side.policy, side.rank) for side in example.sides] == [("base", None), ("tuned", 3)]
    queries = [side.transcript.exchanges[0].turn.query for side in example.sides if side.transcript]
    assert queries == ["base query 2", "tuned query 2"]


def test_a_side_without_a_rollout_has_no_transcript():
    [example] = [e for e in choose(8, without="q1").shown if e.question_id == "q1"]
    assert example.outcome is Outcome.LOST
    assert example.sides[0].transcript is not None
    assert example.sides[1].transcript is None


def test_pages_that_were_shown_have_pictures_where_the_index_has_them(tmp_path: Path):
    shown = [Evidence(hit.file, hit.page_number) for hit in choose(8).shown[0].sides[1].list_hits()]
    images = ImageStore(tmp_path / DIR_NAME)
    key = images.write(Image.new("RGB", (600, 800), "red"))
    pages = [build_page(file=shown[0].file, page_number=shown[0].page_number, image=key), build_page(file="never.pdf", image=key)]
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    drawn = draw_pictures(choose(8), ThumbnailStore(tmp_path))
    assert list(drawn) == shown[:1]
    assert drawn[shown[0]].startswith("data:image/jpeg;base64,")
    assert draw_pictures(choose(8), ThumbnailStore(None)) == {}

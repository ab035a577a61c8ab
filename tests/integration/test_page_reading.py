"""Pages read with their questions by a model in Ray's actors."""

from pathlib import Path

import pytest
from factories import build_page
from nano_training import make_nano_model
from small_index import write_index

from drag_ray import tasks
from drag_ray.baselines.rerank import RerankedConfig
from drag_ray.cluster import ClusterConfig, connect
from drag_ray.engine.reranker import load_reranker
from drag_ray.errors import ConfigError
from drag_ray.evaluate.page_reading import AskedPages, read_pages
from drag_ray.types import Evidence

TEXTS = ["The rotor turns at 340 rpm.", "The fuel pump has a filter.", "Oil is changed once a year."]
PAGES = tuple(Evidence("a.pdf", number) for number in (1, 2, 3))


@pytest.mark.parametrize("apart", [False, True])
def test_each_page_has_the_score_that_the_model_gives_it_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    write_index(tmp_path, [build_page(file="a.pdf", page_number=number, text=text) for number, text in enumerate(TEXTS, 1)], [])
    nano_model = make_nano_model(tmp_path / "nano", hidden_size=32)
    config = RerankedConfig(model=str(nano_model), device="cpu")
    questions = [f"How fast may rotor {number} turn?" for number in range(5)]
    asked = [AskedPages(question, PAGES[: number % 4]) for number, question in enumerate(questions)]
    if apart:  # as on GPUs, where what is read is written in other processes
        monkeypatch.setattr(tasks, "_plan_processes", lambda device, folder: (1, {"num_gpus": 0, "label_selector": {}}))
    with connect(ClusterConfig()):
        scores = read_pages(asked, config, tmp_path / "search_index", tmp_path)
        gone = config.model_copy(update={"model": str(tmp_path / "gone")})
        with pytest.raises(ConfigError, match=r"rerank\.model '.*gone'"):
            read_pages(asked, gone, tmp_path / "search_index", tmp_path)
    reranker = load_reranker(config)
    for one, found in zip(asked, scores, strict=True):
        expected = reranker.score(one.question, TEXTS[: len(one.pages)]) if one.pages else []
        assert found == pytest.approx(expected, abs=1e-4)

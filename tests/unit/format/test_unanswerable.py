"""Nothing is learned from questions without evidence, whatever their rollouts did."""

import pytest
from factories import build_answer, build_question, build_search, build_trajectory

from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import load_format
from drag_ray.format.rows import OF_TURNS, FormatName


@pytest.mark.parametrize("name", OF_TURNS)
def test_no_row_is_built_from_a_question_without_evidence(process, name: FormatName) -> None:
    unanswerable = build_question(id="none", question="Is there a page?", evidence=())
    turns = (build_search("rotor"), build_search("rotor speed", 1), build_answer())
    records = [
        build_trajectory(*turns, question=question, sample_index=sample, id=f"{question.id}-{sample}")
        for question in (build_question(id="some"), unanswerable)
        for sample in range(2)
    ]
    part = process(*records)
    rows = load_format(name).build_rows(part, FormatConfig(formats=(name,)))
    assert "none" not in rows["question_id"].to_list()

import json
from pathlib import Path

import pytest
from evaluation_cases import build_questions, build_search_for
from factories import asked_at, build_hits, build_question, build_search, build_trajectory, change
from finished_cases import write_evaluation

from drag_ray import schemas
from drag_ray.cli.main import main
from drag_ray.errors import ArtifactError, ConfigError, DamageError, DataError
from drag_ray.evaluate.effort import NO_PRICES, Prices
from drag_ray.evaluate.evaluation_folder import read_outcome, read_results
from drag_ray.evaluate.pairing import Side, compare_evaluations
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.scoring import Terms, rescore, score_collection, score_evaluation
from drag_ray.storage import artifacts

RANKS = {"base": [1, 4, None, 9], "tuned": [4, 4, 2, 8]}


def read_table(parts, heading):
    [table] = [part.table for part in parts if part.heading == heading]
    return {row[0]: row[1:] for row in table}


def test_a_rollout_under_other_terms_is_as_if_it_had_had_them():
    question = build_question()
    for rank in (None, 1, 3, 4, 7, 10):
        kept = rank if rank is not None and rank <= 7 else None
        rollout = build_trajectory(
            build_search(evidence_rank=rank), build_search(evidence_rank=2), question=question, **asked_at(rank)
        )
        expected = build_trajectory(
            build_search(
                evidence_rank=kept, hits=build_hits(rank)[:7], rank_score=(5 - kept + 1) / 5 if kept and kept <= 5 else 0.0
            ),
            build_search(evidence_rank=2, hits=build_hits(2)[:7], rank_score=4 / 5),
            question=question,
            **{"question_hits": build_hits(rank)[:7], "question_rank": kept},
            top_k=5,
            depth=7,
            messages=rollout.messages,
        )
        assert rescore(rollout, Terms(top_k=5, depth=7)) == expected


def test_without_terms_a_rollout_stays_as_it_is():
    rollout = build_trajectory(build_search(evidence_rank=4), **asked_at(2))
    assert rescore(rollout, Terms()) == rollout


@pytest.mark.parametrize("terms", [Terms(depth=11), Terms(top_k=11), Terms(depth=2)])
def test_terms_that_were_not_recorded_are_refused(terms):
    with pytest.raises(DataError, match="at most 10, to which its rankings were recorded"):
        rescore(build_trajectory(build_search(evidence_rank=1)), terms)


def test_results_are_read_as_they_were_scored(tmp_path):
    path = write_evaluation(tmp_path / "evaluate", RANKS)
    outcome = read_outcome(path)
    assert read_results(path) == compute_results(outcome.trajectories, outcome.questions)


def test_old_values_stand_beside_new_ones(tmp_path):
    parts = score_evaluation(write_evaluation(tmp_path / "evaluate", RANKS), Terms(top_k=5), NO_PRICES).parts
    values = read_table(parts, "Measures")
    assert [cell.split(" [")[0] for cell in values["First-hit rate %"]] == ["25.0 -> 50.0", "25.0 -> 75.0"]
    assert [cell.split(" [")[0] for cell in values["Hit@10 %"]] == ["75.0 -> 75.0", "100.0 -> 100.0"]
    assert parts[-1].sentences[0].startswith("Recorded then: No significant difference between tuned and base: as many")


def test_only_named_measures_are_shown_and_unknown_ones_refused(tmp_path):
    path = write_evaluation(tmp_path / "evaluate", RANKS)
    assert list(read_table(score_evaluation(path, Terms(), NO_PRICES, ["mrr"]).parts, "Measures")) == ["measure", "MRR"]
    with pytest.raises(ConfigError, match="--measures mmr: no such measure here, expected some of first_hit_rate"):
        score_evaluation(path, Terms(), NO_PRICES, ["mmr"])


def test_an_evaluation_that_is_not_finished_or_not_as_it_was_written_is_refused(tmp_path):
    path = write_evaluation(tmp_path / "evaluate", RANKS)
    (path / "comparison.json").write_text((path / "comparison.json").read_text().replace("0.25", "0.75"))
    with pytest.raises(DamageError):
        read_outcome(path)
    (path / artifacts.MANIFEST_NAME).unlink()
    with pytest.raises(ArtifactError, match="has not finished"):
        read_outcome(path)


def write_collection(path: Path, rollouts) -> None:
    artifacts.write_parquet(path / "trajectories" / "1.parquet", schemas.to_table(rollouts, schemas.TRAJECTORIES))


def test_samples_of_a_collection_give_pass_at_k_and_baselines_stand_apart(tmp_path):
    questions = build_questions(2)
    rollouts = [
        build_trajectory(
            build_search_for(question, "q", rank), question=question, sample_index=index, id=f"{question.id}/default/{index}"
        )
        for question, ranks in zip(questions, ([1, None], [5, 6]), strict=True)
        for index, rank in enumerate(ranks)
    ]
    proposed = change(rollouts[0], id="q0/default/0/rm3", baseline="rm3")
    hinted = change(rollouts[2], id="q1/default/0/hinted", hinted=True)
    write_collection(tmp_path, [*rollouts, proposed, hinted])
    scored = score_collection(tmp_path, Terms(top_k=5), num_resamples=200)
    parts = scored.parts
    assert [part.heading for part in parts] == ["collected", "Several samples", "rm3", "Several samples"]
    values = {row[0]: row[1].split(" [")[0] for row in parts[0].table}
    assert values["First-hit rate %"] == "25.0 -> 50.0"
    assert [cell.split(" [")[0] for cell in parts[1].table[1]] == ["turn 1", "50.0", "100.0"]  # k of 1 and of 2
    assert "1 rollouts of 1 questions" in parts[2].sentences[0]
    rates = [row.metrics for row in scored.rows if row.name == "first_hit_rate"]
    assert [(name, metric.value) for metrics in rates for name, metric in metrics.items()] == [("collected", 0.5), ("rm3", 1.0)]


@pytest.mark.seconds
def test_the_command_scores_a_run_and_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_evaluation(tmp_path / "run" / "evaluate", RANKS)
    report_dir = tmp_path / "report"
    assert main(["score", str(tmp_path / "run"), "--top-k", "5", "--report", str(report_dir)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "scored again: top_k 3 -> 5, depth 10 -> 10" in said
    assert json.loads((report_dir / "comparison.json").read_text())["top_k"] == 5
    assert {path.name for path in report_dir.iterdir()} == {"comparison.json", "report.html", "report.md", "results.jsonl"}


def test_the_command_scores_a_collection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_collection(tmp_path / "run" / "collect", [build_trajectory(build_search(evidence_rank=2))])
    assert main(["score", str(tmp_path / "run"), "--measures", "mrr"]) == 0
    assert "MRR      0.500 -> 0.500\n" in capsys.readouterr().out
    assert main(["score", str(tmp_path)]) == 1
    assert "no rollout of a question with evidence" in capsys.readouterr().err


@pytest.mark.seconds
def test_costs_are_reckoned_at_the_prices_that_were_recorded_and_an_endpoint_keeps_its_own(tmp_path: Path) -> None:
    recorded = Prices(1.0, 2.0, own={"tuned": Prices(10.0, 40.0)})
    path = write_evaluation(tmp_path / "evaluate", RANKS, prices=recorded)
    assert read_outcome(path).prices == recorded

    def find_costs(prices: Prices) -> dict[str, float]:
        assert score_evaluation(path, Terms(), prices, report_dir=tmp_path / "again").parts
        efforts = json.loads((tmp_path / "again" / "comparison.json").read_text())["efforts"]
        return {policy: effort["cost_per_solved"]["value"] for policy, effort in efforts.items()}

    kept, changed = find_costs(NO_PRICES), find_costs(Prices(2.0, 4.0))
    assert kept["base"] > 0
    assert changed == pytest.approx({"base": 2 * kept["base"], "tuned": kept["tuned"]})
    compared, _ = compare_evaluations(Side(path, ("base",)), Side(path, ("tuned",)), NO_PRICES, num_resamples=200)
    costs = {policy: effort.cost_per_solved.value for policy, effort in compared.efforts.items()}
    assert costs == pytest.approx({f"{side}:{policy}": kept[policy] for side, policy in (("A", "base"), ("B", "tuned"))})

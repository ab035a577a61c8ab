from dataclasses import replace

import pytest
from evaluation_cases import CONTEXT, build_answering, build_comparison, build_questions, build_rollouts
from factories import change

from drag_ray.agent.tasks import TASKS
from drag_ray.errors import DataError
from drag_ray.evaluate.comparison import compare
from drag_ray.evaluate.measure import CRITERIA, choose_criterion
from drag_ray.evaluate.report.examples import Examples, Outcome, choose_examples
from drag_ray.evaluate.report.formatting import write_settings, write_verdict
from drag_ray.evaluate.report.parts import build_parts, build_report, format_console
from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.statistics.pass_at_k import compute_pass_rates
from drag_ray.evaluate.statistics.rows import count_tests

RIGHT, WRONG = "340 rpm", "unknown"


def test_every_task_has_a_criterion_whose_measures_are_reported() -> None:
    for task in TASKS:
        criterion = choose_criterion(task)
        assert criterion.tested[0] == criterion.primary
        assert criterion.ranked_by in criterion.tested
    assert choose_criterion("find_page") is choose_criterion("rerank") is CRITERIA["ranking"]
    with pytest.raises(DataError, match=r"task '\.\.task', expected one of find_page, rerank, answer"):
        choose_criterion("..task")


def test_who_answers_better_and_searches_the_same_answers_better() -> None:
    comparison = build_answering({"base": [WRONG] * 40, "tuned": [RIGHT] * 12 + [WRONG] * 28})
    [sentence] = write_verdict(comparison)
    assert sentence.startswith(
        "tuned answers significantly better than base: 12 more right answers over 40 test questions (+30.0 points, 95% interval +"
    )
    assert sentence.endswith("p=0.0010).")  # 0.00049 of the exact test, for one of two tests
    assert (comparison.primary.name, comparison.rows[0].name) == ("anls_accuracy", "anls")
    assert count_tests(comparison.rows, comparison.top_k) == 2
    assert comparison.row("first_hit_rate").difference("tuned", "base").adjusted_p_value is None
    assert comparison.row("hit_at_3").difference("tuned", "base").adjusted_p_value is None


def test_what_does_not_answer_has_no_answers_rather_than_wrong_ones() -> None:
    questions = build_questions(20)
    rollouts = build_rollouts({"query2doc": [1] * 20, "base": [1] * 20, "tuned": [1] * 20})
    rollouts["query2doc"] = [change(rollout, final_answer="") for rollout in rollouts["query2doc"]]  # that of find_page
    rollouts["base"] = [change(rollout, final_answer="", task="answer") for rollout in rollouts["base"]]
    rollouts["tuned"] = [replace(rollout, task="answer") for rollout in rollouts["tuned"]]
    comparison = compare(compute_results(rollouts, questions), "base", num_resamples=500)
    [against_base] = write_verdict(comparison)
    assert against_base.startswith("tuned answers significantly better than base: 20 more right answers")
    alone = compare(compute_results({n: rollouts[n] for n in ("query2doc", "tuned")}, questions), "query2doc", num_resamples=99)
    assert write_verdict(alone) == [
        "Cannot compare tuned and query2doc: tuned has an answer accuracy of 100.0 % over 20 questions and "
        "query2doc has no answer accuracy."
    ]
    assert "Nothing is tested: no other policy has what tuned is judged by" in write_settings(alone, CONTEXT)[-1]
    assert "-</b>" in build_report(alone, Examples(), CONTEXT, {})
    examples = choose_examples(rollouts, compute_results(rollouts, questions), CRITERIA["answer"], "query2doc", "tuned", 1)
    assert [side.describe() for side in examples.shown[0].sides] == ["no answer", "ANLS* 1.000"]


def test_the_report_of_answers_speaks_of_answers() -> None:
    comparison = build_answering({"base": [WRONG] * 20, "tuned": [RIGHT] * 19 + ["341 rpm"]}, ranks=[1] * 10 + [None] * 10)
    html = " ".join(build_report(comparison, Examples(), CONTEXT, {}).split())
    assert 'aria-label="Answer accuracy of each policy"' in html
    assert "A question is solved when its answer is right" in html
    assert "answers significantly better" in html
    assert "finds" not in html.split("<h2>Measures</h2>")[0].split("</header>")[1]
    text = format_console(build_parts(comparison, CONTEXT))
    assert "Answer accuracy %" in text.split("First-hit rate")[0]  # the first measure is what the task is about
    assert "Holm over 2 tests of tuned against base on ANLS*, Answer accuracy; raw" in write_settings(comparison, CONTEXT)[-1]
    assert comparison.efforts["tuned"].tokens_per_solved.value == 4.0  # of two turns
    assert comparison.efforts["base"].tokens_per_solved.value is None


def test_parts_of_the_questions_have_the_answers_of_their_own() -> None:
    questions = [replace(question, category="ab"[place % 2]) for place, question in enumerate(build_questions(4))]
    rollouts = build_rollouts({"base": [1] * 4, "tuned": [None] * 4})
    for policy, given in {"base": [WRONG] * 4, "tuned": [RIGHT, WRONG, RIGHT, RIGHT]}.items():
        rollouts[policy] = [
            change(r, category=q.category, final_answer=a, task="answer")
            for r, q, a in zip(rollouts[policy], questions, given, strict=True)
        ]
    results = compute_results(rollouts, questions)
    strata = {row.name: row for row in compare(results, "base", num_resamples=99).strata}
    assert [strata[f"category:{part}"].metrics["tuned"].value for part in "ab"] == [1.0, 0.5]
    assert strata["category:a"].definition == "answer accuracy on the 2 questions of category a"
    examples = choose_examples(rollouts, results, CRITERIA["answer"], "base", "tuned", 9)
    assert examples.counts == {Outcome.WON: 3, Outcome.BOTH_FAILED: 1}
    assert {side.describe() for side in examples.shown[0].sides} == {"ANLS* 0.000", "ANLS* 1.000"}
    [rate] = compute_pass_rates(results["tuned"], CRITERIA["answer"], 0.95, 99)[-1:]
    assert (rate.num_turns, rate.value) == (2, 0.75)  # it is the second turn that answers


def test_policies_of_other_tasks_are_judged_by_what_they_find() -> None:
    assert build_comparison({"base": [1], "tuned": [2]}).primary.name == "first_hit_rate"
    [sentence] = write_verdict(build_answering({"base": [WRONG] * 20, "tuned": [RIGHT] * 20}, task="rerank"))
    assert sentence.startswith("No significant difference between tuned and base: as many first hits over 20 test questions")

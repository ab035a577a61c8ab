"""Where policies stand that were searched for again."""

from factories import build_question, build_search, build_trajectory

from drag_ray.evaluate.policies.retriever_rescoring import add_variants


def test_what_was_searched_again_stands_after_its_policy_and_a_baseline_in_its_place() -> None:
    old, new = ([build_trajectory(build_search(query), question=build_question(id="q"))] for query in ("rotor", "wing"))
    given = {"question": old, "rerank": old, "base": old, "tuned": old}
    found = {"base+rerank": new, "rerank": new, "base+hybrid": new, "tuned+hybrid": new}
    placed = add_variants(given, found)
    expected = ["question", "rerank", "base", "base+rerank", "base+hybrid", "tuned", "tuned+hybrid"]
    assert list(placed) == expected
    assert [name for name, rollouts in placed.items() if rollouts == new] == [
        "rerank",
        "base+rerank",
        "base+hybrid",
        "tuned+hybrid",
    ]
    assert all(placed[name] == old for name in ("question", "base", "tuned"))

"""What tables of what is found are of: questions, pages, runs. The sentences that stand before them."""

from figure_cells import describe_gpus, p_value, read_record, read_results, to_paragraph
from figure_quality import find_effect, take_value
from figure_words import take_difference


def write_effect_terms() -> str:
    """What the table of policies with and without a trained model is of."""
    medquad, fairytaleqa, manuals = (find_effect(name, "question")["n"] for name in ("medquad", "fairytaleqa", "manuals"))
    return to_paragraph(
        f"""Queries that nobody trained, and those of trained models (`benchmarks/results/effect.json`; first search, BM25;
        medquad: {medquad:,} questions, fairytaleqa: {fairytaleqa:,}, the embedded manuals: {manuals:,}; * differs from the
        question at p < .01 after Holm over the file, resampled by document; what is not marked in the rows of models was not
        compared with it, does not differ, or was measured with 10,000 resamples, whose least p is too large after Holm over so
        many comparisons, as that of SmolLM2 on medquad and of SFT, then DPO; models on manuals are below, on those of another
        machine):"""
    )


def write_methods_terms() -> str:
    """What the table of the training methods is of."""
    files = {name: read_results(f"{name}_round_gpus") for name in ("sft", "rl", "dpo")}
    collected, seconds = files["sft"]["stage_counts"]["collect"], [one["stage_seconds"]["collect"] for one in files.values()]
    tested = {
        (name, measure): take_difference(results, measure, "tuned", "base")["p_value"]
        for name, results in files.items()
        for measure in ("hit_at_1", "hit_at_3", "hit_at_10")
    }
    base = [[take_value(one, measure, "base") for one in files.values()] for measure in ("hit_at_1", "hit_at_3", "hit_at_10")]
    apart = max(max(values) - min(values) for values in base)
    exception = tested.pop(("rl", "hit_at_1"))
    return to_paragraph(
        f"""The loop once with SmolLM2-135M on {describe_gpus(read_record("sft_round_gpus"))}, the demo's options, but
        {collected["rollouts"]:,} rollouts of
        {collected["questions"]:,} training questions at temperature 1, collected in {min(seconds):.0f} to {max(seconds):.0f} s,
        and ZeRO-2 on both GPUs; the first search for each of all {files["sft"]["questions"]:,} held-out questions
        (`sft_round_gpus.json`, `rl_round_gpus.json`, `dpo_round_gpus.json`; each difference from the base model has p
        < {_round_up(max(tested.values()))}, but for `grpo` at the first rank, p = {p_value(exception)}; the base row is the mean
        of the three evaluations, which are up to {100 * apart:.1f} points apart):"""
    )


def _round_up(value: float) -> str:
    """The power of ten above a p-value, for example .0001."""
    digits = next(digits for digits in range(15, 0, -1) if value < 10**-digits)
    return f"{10**-digits:.{digits}f}".removeprefix("0")


def write_embedded_terms() -> str:
    """What the table of the raw question is of."""
    pages = read_results("search_quality")["embedded_corpus"]["pages"]
    return to_paragraph(
        f"""The raw question as an OR query on the embedded corpus ({pages:,} pages of five packages, stemmed English,
        `benchmarks/results/search_quality.json`):"""
    )


def write_model_baselines_terms() -> str:
    """What the table of HyDE and Query2doc is of."""
    sets = read_results("model_baselines")["sets"].values()
    found = [metric for one in sets for name in ("hit_at_1", "hit_at_3", "mrr") for metric in one["measures"][name].values()]
    [questions] = {one["questions"] for one in sets}
    width = sum(metric["high"] - metric["low"] for metric in found) / 2 / len(found)
    return to_paragraph(
        f"""With SmolLM2-135M writing, on {questions} held-out questions of each set, Hit@1 / Hit@3 / MRR
        (`model_baselines.json`, greedy; the base model as an agent of one search, with the demo's prompt; intervals of about
        {100 * width:.0f} points either way):"""
    )


def write_recipe_terms() -> str:
    """What the table of two rounds is of."""
    trained = read_results("recipe_medquad_all_questions")["counts"]["rounds/1/collect"]["questions"]
    return to_paragraph(
        f"""Qwen2.5-Coder-1.5B-Instruct on medquad, {describe_gpus(read_record("recipe_medquad_all_questions"))}, all
        {trained:,} training questions, one run
        (`recipe_medquad_all_questions.json`). The {find_effect("medquad", "question")["n"]:,} test questions (`effect.json`), in
        the first search:"""
    )

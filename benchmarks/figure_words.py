"""Sentences about what was found and how long it took, with the numbers of the results in them."""

from typing import Any

from figure_cells import (
    describe_gpus,
    name_gpu,
    p_value,
    percent,
    read_record,
    read_results,
    short,
    to_item,
    to_paragraph,
    to_table,
    write_test,
)
from figure_quality import LARGE, find_effect, take_value

_DETECTABLE = (1.96 + 0.84) / (2 * 1.96)
"""Of the width of a 95 % interval: the true difference that a test at 5 % finds with 80 % power."""


def take_difference(results: Any, measure: str, policy: str, reference: str) -> Any:
    """The difference of two policies in a comparison."""
    differences = results["measures"][measure]["differences"]
    return next(one for one in differences if (one["policy"], one["reference"]) == (policy, reference))


def points(value: float) -> str:
    """A difference of shares in points, for example +29.6."""
    return f"{100 * value:+.1f}".replace("+0.", "+.").replace("-0.", "-.")


def signed(value: float) -> str:
    """A difference of scores, for example +.013."""
    return f"{value:+.3f}".replace("0.", ".", 1)


def tested_difference(found: Any) -> str:
    """[difference, low, high, p, p after Holm] as text."""
    value, low, high, raw, adjusted = found
    return f"{signed(value)} [{signed(low)}, {signed(high)}], {write_test(raw, adjusted)}"


def write_demo_terms() -> str:
    """What the demo's report is of."""
    results = read_results("demo")
    pages = results["stage_counts"]["index"]["pages"]
    return to_paragraph(
        f"""What the demo's report said on 2 cores of an AMD EPYC with 24 GiB (all {results["questions"]:,} held-out questions,
        {pages:,} pages, greedy, one seed; 95 % bootstrap intervals over documents, p after Holm;
        `benchmarks/results/demo.json`):"""
    )


def write_demo_room() -> str:
    """What the demo had to learn from."""
    counts = read_results("demo")["stage_counts"]
    return to_paragraph(
        f"""{counts["process"]["questions_with_win"]} of {counts["process"]["questions"]:,} training questions had a sample that
        beat the question, which came to {counts["finetune"]["rows"]} training rows."""
    )


def write_manuals_item() -> str:
    """The demo on the manuals, as an item of a list."""
    results = read_results("demo_manuals")
    hits, ranks = (
        [short(take_value(results, measure, name)) for name in ("tuned", "question")] for measure in ("hit_at_3", "mrr")
    )
    above = take_difference(results, "hit_at_10", "tuned", "question")
    return to_item(
        f"""**The manuals as the demo's corpus** (`benchmarks/results/demo_manuals.json`; question weight 3,
        {results["stage_counts"]["collect"]["questions"]:,} questions, samples at temperature 1 with proposals of three baselines,
        {results["stage_counts"]["finetune"]["rows"]} rows): over {results["questions"]} test questions tuned and question are the
        same at ranks 1 and 3 (Hit@3 {hits[0]} and {hits[1]}, MRR {ranks[0]} and {ranks[1]}), and tuned is above at rank 10 alone
        ({points(above["value"])} points [{points(above["low"])}, {points(above["high"])}], p =
        {p_value(above["adjusted_p_value"])}). The questions are sentences of the pages."""
    )


def write_fairytaleqa_item() -> str:
    """Fairytaleqa, as an item of a list."""
    counts = read_results("recipe_fairytaleqa")["counts"]["rounds/1/process"]
    named = (("round2", LARGE), ("base", LARGE), ("question", ""), ("question_keywords", ""))
    found = [find_effect("fairytaleqa", policy, model) for policy, model in named]
    tuned, base, question, keywords = (short(row["mrr"]) for row in found)
    own, proposed = (
        f"{100 * counts[name] / counts['questions']:.0f} %" for name in ("questions_with_win", "questions_with_proposed_win")
    )
    return to_item(
        f"""**fairytaleqa** (`recipe_fairytaleqa.json`, `effect.json`; the 1.5B model, with `agent.question_words` `key` and
        proposals of `question_keywords`, which weights some of the question's words): MRR {tuned} after two rounds, {base}
        untrained, {question} the question, {keywords} its key words. {own} of the training questions had a sample that beat the
        key words, {proposed} a proposal. Leaving out the stop words is what gains; train where the room, and what wins in it, has
        a pattern. The weights of the question found best were {found[1]["question_weight"]:.0f} and
        {found[0]["question_weight"]:.0f}, of which little is left of what is added."""
    )


def write_judge_cost() -> str:
    """What a verdict costs."""
    results = read_results("judge_cost")
    return to_paragraph(
        f"""What a verdict costs: {results["prompt_tokens_per_answer"]:.0f} tokens read and
        {results["completion_tokens_per_answer"]:.0f} written an answer, on average over {results["answers_judged"]} answers to
        questions of fairytaleqa, so {short(results["cost_per_thousand_answers"], 2)} for a thousand answers at
        {short(results["prompt_price"], 2)} and {short(results["completion_price"], 1)} a million tokens
        (`benchmarks/results/judge_cost.json`)."""
    )


def write_demo_words() -> str:
    """What the demo's table says."""
    rows = read_results("demo")["stage_counts"]["finetune"]["rows"]
    return to_paragraph(
        f"""The tuned model has learned from {rows} additions of its own that beat the question. What it adds finds more than the
        question alone and more than what needs no model. Most of the gain is there before training, in the prompt with three
        examples: how far training goes beyond it is not sure with so few rows."""
    )


def write_effect_large() -> str:
    """A model of 1.5B parameters on medquad."""
    question, base, templates = (
        find_effect("medquad", policy, model) for policy, model in (("question", ""), ("base", LARGE), ("templates", ""))
    )
    tuned, seconds = find_effect("medquad", "round2", LARGE), read_results("recipe_medquad_all_questions")["stages_s"]

    def above(other: Any, measure: str) -> str:
        return points(tuned[measure] - other[measure])

    against = tuned["vs_best_untrained"]["hit3"]
    return to_paragraph(
        f"""The 1.5B model, tuned in two rounds on {describe_gpus(read_record("recipe_medquad_all_questions"))}
        ({sum(seconds.values()) / 60:.0f} minutes, evaluation included,
        `recipe_medquad_all_questions.json`), finds far more than the question (Hit@1 {above(question, "hit1")} points, Hit@10
        {above(question, "hit10")}) and than itself untrained ({above(base, "hit1")} and {above(base, "hit10")}). It has learned
        what `templates` knows, and draws level with it: {above(templates, "hit1")} at Hit@1, {above(templates, "hit3")} at Hit@3
        (p = {p_value(against[3])}, {p_value(against[4])} after Holm), {above(templates, "hit10")} at Hit@10."""
    )


def write_effect_small() -> str:
    """A model of 135M parameters on medquad."""
    counts = read_results("recipe_medquad_smollm2")["counts"]
    question, templates = find_effect("medquad", "question"), find_effect("medquad", "templates")
    tuned = find_effect("medquad", "tuned", "embedded")
    return to_paragraph(
        f"""SmolLM2-135M, which learned by SFT from {counts["rounds/1/finetune"]["rows"]:,} rows, most of which they proposed (one
        {name_gpu(read_record("recipe_medquad_smollm2"))}, all {counts["rounds/1/collect"]["questions"]:,} training questions,
        `recipe_medquad_smollm2.json`), finds more than
        the question (Hit@1 {points(tuned["hit1"] - question["hit1"])} points, Hit@10
        {points(tuned["hit10"] - question["hit10"])}), and draws level with `templates` too (MRR {short(tuned["mrr"])} and
        {short(templates["mrr"])})."""
    )


def write_effect_fairytaleqa() -> str:
    """A model of 1.5B parameters on fairytaleqa."""
    rows = read_results("recipe_fairytaleqa")["counts"]["rounds/1/finetune"]["rows"]
    tuned = find_effect("fairytaleqa", "round2", LARGE)
    value, low, high, alone, corrected = tuned["vs_question"]["mrr"]
    untrained = tuned["vs_best_untrained"]["mrr"]
    return to_paragraph(
        f"""On fairytaleqa nobody's additions help much. The 1.5B model adds to the question's key words there
        (`agent.question_words`), which find more than the question among the training questions too. It was trained on {rows:,}
        rows of its own samples and of proposed weights for these words, then by DPO (`recipe_fairytaleqa.json`): MRR
        {signed(value)} above the question [{signed(low)}, {signed(high)}], p = {p_value(alone)}, which is {p_value(corrected)}
        after Holm over the file. That is the key words' gain: it cannot be told from its base (MRR {signed(untrained[0])}), which
        is level with them. Training does not pay there: what the answers need is in single questions."""
    )


def write_effect_manuals() -> str:
    """A model of 1.5B parameters on manuals."""
    results = read_results("recipe_manuals")
    test, counts, other = results["test"], results["counts"], results["dpo_in_place_of_sft"]
    mrr = {name: short(found["mrr"]) for name, found in test["first_search"].items()}
    base = test["differences"]["question - base"]["mrr"]
    tuned, beside = (test["differences"][f"round1 - {name}"] for name in ("question", "base"))
    dpo = other["differences"]["round1 - base"]["hit1"]
    validation = {name: short(results["validation"][name]["mrr"]) for name in ("base", "round 1, sft")}
    return to_paragraph(
        f"""On manuals the 1.5B model knows the subject, and wins before it is trained (`recipe_manuals.json`; those of the
        machine that it ran on, {counts["index"]["pages"]:,} pages, {test["num_questions"]:,} test questions): with two examples
        in its prompt its additions come to an MRR of {mrr["base"]}, the question to {mrr["question"]}, its key words to
        {mrr["question_keywords"]}, the difference from the question is {signed(-base["value"])} [{signed(-base["high"])},
        {signed(-base["low"])}] (p = {p_value(base["p_value"])} before Holm). SFT takes some of that away. After it, on
        {counts["rounds/1/finetune"]["rows"]:,} rows the MRR is {mrr["round1"]}, above the question by
        {signed(tuned["mrr"]["value"])} (p = {p_value(tuned["mrr"]["adjusted_p_value"])} after Holm over the report; Hit@10
        {points(tuned["hit10"]["value"])} points, p = {p_value(tuned["hit10"]["adjusted_p_value"])}) and below its base by
        {signed(-beside["mrr"]["value"]).removeprefix("+")} (p = {p_value(beside["mrr"]["p_value"])} before Holm). DPO on the same
        collection in place of SFT is below it surely (Hit@1 {points(dpo["value"])} points, p =
        {p_value(dpo["adjusted_p_value"])}). The validation questions did not foresee it (MRR {validation["base"]} of the base,
        {validation["round 1, sft"]} after SFT, at the weight of the collection). The base does best where a word of the question
        weighs {test["question_weights"]["base"]:.0f}, and its replies were collected and chosen at 3."""
    )


def write_effect_manuals_rl() -> str:
    """The same model, and a small one, after reinforcement learning."""
    record = read_record("recipe_manuals_grpo")
    results, small = record["results"], read_results("recipe_manuals_grpo_smollm2")
    test, counts, validation = results["test"], results["counts"], results["validation"]
    mrr = {name: short(found["mrr"]) for name, found in test["first_search"].items()}
    rounds = ", ".join(short(validation[f"round {number}"]["mrr"]) for number in (1, 2, 3))
    above, beside = (test["differences"][f"round2 - {name}"] for name in ("question", "base"))
    lost, hybrid = test["differences"]["round3 - round2"]["mrr"], test["differences"]["round2 - hybrid"]["mrr"]
    collected = [small["counts"][f"rounds/{number}/collect"] for number in (1, 2)]
    unreadable = [percent(one["invalid_replies"] / one["rollouts"]) for one in collected]
    gain = small["test"]["differences"]["round2 - question"]["mrr"]
    return to_paragraph(
        f"""Reinforcement learning keeps that and adds a little, when the rollouts are searched at the weight that serves the base
        (`recipe_manuals_grpo.json`, `benchmarks/effect/rl/manuals.toml`; one {name_gpu(record)}, three rounds of
        {counts["rounds/1/collect"]["rollouts"]:,} rollouts). On the validation questions the MRR is
        {short(validation["base"]["mrr"])} before and {rounds} after the rounds, so the second is taken. On the test questions
        it comes to {mrr["round2"]}. Above the question: Hit@3 {points(above["hit3"]["value"])} points, p =
        {p_value(above["hit3"]["adjusted_p_value"])}, MRR {signed(above["mrr"]["value"])}, p =
        {p_value(above["mrr"]["adjusted_p_value"])}, after Holm over the ten comparisons of the file. Above its base, at the
        weights that the validation questions chose: MRR {signed(beside["mrr"]["value"])} [{signed(beside["mrr"]["low"])},
        {signed(beside["mrr"]["high"])}], p = {p_value(beside["mrr"]["p_value"])} before Holm and
        {p_value(beside["mrr"]["adjusted_p_value"])} after. `hybrid`, the question searched by words and by vectors, is level with
        it ({mrr["hybrid"]}; {signed(hybrid["value"])} [{signed(hybrid["low"])}, {signed(hybrid["high"])}]). The third round lost
        it again (MRR {signed(lost["value"])}): more rounds are no gain by themselves, and the validation questions tell.
        SmolLM2-135M learned in two rounds to write what can be read ({unreadable[0]} and {unreadable[1]} of its replies could not
        be), and comes to an MRR of {short(small["test"]["first_search"]["round2"]["mrr"])}, {signed(gain["value"])} above the
        question [{signed(gain["low"])}, {signed(gain["high"])}], p = {p_value(gain["p_value"])} before Holm and
        {p_value(gain["adjusted_p_value"])} after."""
    )


def write_effect_transfer() -> str:
    """What the adapter that was trained on manuals finds on other sets."""
    rows = []
    for name in ("medquad", "fairytaleqa", "ohr_bench", "financebench"):
        tuned, base = (find_effect(f"{name}, trained on manuals", policy, LARGE) for policy in ("manuals", "base"))
        value, low, high, alone, _ = tuned["vs_question"]["mrr"]
        rows.append(
            [
                *(name, f"{tuned['n']:,}", short(tuned["mrr"] - value), short(base["mrr"]), short(tuned["mrr"])),
                f"{signed(value)} [{signed(low)}, {signed(high)}], p = {p_value(alone)}",
                f"{points(tuned['vs_question']['hit10'][0])}",
                short(_DETECTABLE * (high - low)),
            ]
        )
    header = ["", "N", "question", "base", "trained on manuals", "above the question", "Hit@10, points", "detectable"]
    return to_table(header, rows)


def write_methods_words() -> str:
    """What DPO, the reward model and GRPO came to beside the table of the methods."""
    dpo, reward, small_rl = (read_results(name) for name in ("dpo_round_gpus", "reward_model_round_gpus", "rl_round"))
    without = {name: counts["questions_without_search"] for name, counts in dpo["incidents"].items()}
    second, collected = dpo["second_round"], [run["stage_counts"]["collect"] for run in (dpo, dpo["second_round"])]
    found = [f"{100 * counts['found'] / counts['rollouts']:.0f} %" for counts in collected]
    again = take_difference(second, "hit_at_3", "tuned", "base")["p_value"]
    steps = small_rl["stage_counts"]["finetune"]["steps"]
    unreadable = [round(take_value(small_rl, "num_format_errors", name) * small_rl["questions"]) for name in ("base", "tuned")]

    def hit(results: Any, measure: str, policy: str) -> str:
        return percent(take_value(results, measure, policy)).removesuffix(" %")

    return to_paragraph(
        f"""DPO learns most here, and in one way it makes worse replies: {without["tuned"]} questions are left without any search
        instead of {without["base"]}, but of the two replies to each more cannot be read. A second round of it, on what the tuned
        model collected, changed nothing that could be told from chance (Hit@3 {hit(second, "hit_at_3", "base")} ->
        {hit(second, "hit_at_3", "tuned")} %, p = {p_value(again)}), though its rollouts had found the page in {found[1]} of the
        cases instead of {found[0]}. The greedy base model itself differs a little between these evaluations, as it does when
        other requests share its batches. Of the pairs of questions that it had not seen the reward model gets
        {100 * reward["stage_counts"]["finetune"]["eval_pair_accuracy"]:.0f} % right (`reward_model_round_gpus.json`). On two CPU
        cores, with less of everything, `rl_round.json`: {steps} steps of 8 replies, Hit@10
        {hit(small_rl, "hit_at_10", "base")} -> {hit(small_rl, "hit_at_10", "tuned")} % of {small_rl["questions"]} questions
        (p = {p_value(take_difference(small_rl, "hit_at_10", "tuned", "base")["p_value"])}), unreadable replies
        {unreadable[0]} -> {unreadable[1]}."""
    )


def write_recipe_words() -> str:
    """What the two rounds came to beside their table."""
    results = read_results("recipe_medquad_rounds")
    rows = results["stages"]["rounds/1/finetune counts"]["rows"]
    after = [short(one["tuned"]["mrr"]) for one in results["rounds"]]
    return to_paragraph(
        f"""The model has learned from proposals what `templates` knows. What is left is in single questions, and neither round
        found it. DPO with a learning rate of 1e-5 changed little (its pairs were the first of a file in the order of its
        questions; `finetune.limit` draws questions since then); with 5e-5 it lost on the validation questions what SFT had
        gained (`recipe_medquad_rounds.json`, 4,000 training questions, {rows:,} rows: MRR {after[0]} after SFT, {after[1]} after
        DPO). More questions of the same few forms taught nothing new, so the recipe collects from 4,000."""
    )


def write_recipe_times() -> str:
    """How long the two rounds took, and how busy the GPU was."""
    results = read_results("recipe_medquad_all_questions")
    seconds, busy, counts = results["stages_s"], results["gpu_utilization_by_stage"], results["counts"]
    whole = "gpu_utilization_from_first_rollout_to_report"
    beside = [read_results(f"recipe_{name}")[whole] for name in ("fairytaleqa", "medquad_smollm2")]
    return to_paragraph(
        f"""The times: collection {seconds["rounds/1/collect"]:.0f} s (of which
        {results["first_rollouts_after_s"]["rounds/1/collect"]} s until the first rollouts ended;
        {counts["rounds/1/collect"]["rollouts"]:,} rollouts), SFT {seconds["rounds/1/finetune"]:.0f} s for
        {counts["rounds/1/finetune"]["steps"]:,} steps, second collection {seconds["rounds/2/collect"]:.0f} s for
        {counts["rounds/2/collect"]["rollouts"]:,} rollouts, DPO {seconds["rounds/2/finetune"]:.0f} s, evaluation of ten policies
        {seconds["evaluate"]:.0f} s. From the first finished rollout to the report the GPU was
        {100 * results[whole]:.0f} % busy:
        {100 * busy["rounds/1/finetune"]:.0f} % in SFT, {100 * busy["rounds/2/finetune"]:.0f} % in DPO,
        {100 * busy["rounds/1/collect"]:.0f} % in collections, whose replies are short and whose searches keep the CPUs busy, and
        {100 * busy["evaluate"]:.0f} % in the last evaluation, most of which `templates`, searches and statistics take. Since then
        baselines without an engine are prepared and searched beside those that the GPU writes for, which was measured once more,
        with two pipelines side by side on the two GPUs of a host: {100 * beside[0]:.0f} % busy on fairytaleqa with the 1.5B
        model, {100 * beside[1]:.0f} % on medquad with SmolLM2 (`recipe_fairytaleqa.json`, `recipe_medquad_smollm2.json`): the
        smaller the model, the more the searches, the proposals and the last evaluation's baselines decide."""
    )

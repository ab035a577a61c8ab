"""Sentences of the recipe: where there is something to learn, and how few rows were too few."""

from figure_cells import p_value, read_results, short, to_item, to_paragraph, write_test
from figure_quality import LARGE, LISTWISE_RUN, RERANKER_RUN, SMALL, find_effect, find_reranked
from figure_words import signed


def write_recipe_room() -> str:
    """What baselines that learn without a model say about a collection, as items of a list."""
    templates, neighbours, question = (
        short(find_effect("medquad", name)["hit1"]) for name in ("templates", "neighbours", "question")
    )
    tried, without = (find_effect("fairytaleqa", name) for name in ("templates", "question"))
    items = (
        f"""They do far better than the question (medquad: Hit@1 {templates} with `templates`, {neighbours} with `neighbours`,
        {question} without): questions come in a few forms, and there is much to learn. They are also the bar: a tuned model that
        stays below them need not be deployed.""",
        """`neighbours` does worse than the question and `templates` finds nothing to add (the embedded commands): what there is
        to gain is in single questions, and takes a model that knows the subject.""",
        f"""Questions that were taken from the pages (the manuals' are the first sentences of their entries) are searched best as
        they stand: of the manuals' kinds of questions none gains by words, and on fairytaleqa the few that gain in training do
        not on other questions (MRR {short(tried["mrr"])} with `templates`, {short(without["mrr"])} without; p =
        {p_value(tried["vs_question"]["mrr"][3])}).""",
    )
    return "\n".join(map(to_item, items))


def write_recipe_hybrid() -> str:
    """What a tuned model adds to a search by words and by vectors."""

    def say(policy: str, model: str = SMALL, run: str = RERANKER_RUN) -> str:
        row = find_reranked("medquad", policy, model, run)
        return f"{short(row['hit3'])} and {short(row['mrr'])}"

    def test(model: str, run: str, seed: int = 0) -> str:
        row = find_reranked("medquad", "tuned+hybrid", model, run, seed)
        value, _, _, raw, adjusted = row["vs_best_untrained"]["mrr"]
        return f"{signed(value)}, {write_test(raw, adjusted)}"

    rows = read_results("recipe_medquad_smollm2_vectors")["counts"]["rounds/1/finetune"]["rows"]
    return to_paragraph(
        f"""With SmolLM2-135M on medquad ({find_reranked("medquad", "question")["n"]:,} held-out questions, SFT on {rows:,} rows
        of 4,000 training questions; `recipe_medquad_smollm2_vectors.json`, `effect.json`) Hit@3 and MRR are {say("hybrid")} for
        the question by words and by vectors, {say("base+hybrid")} with what the untrained model adds, {say("tuned+hybrid")} with
        what the tuned one adds, and {say("tuned")} without the vectors. `templates`, which learns from the same questions
        without a model, is at {say("templates")}, and by both at {say("templates+hybrid")}: the tuned model is not surely above
        that (MRR {test(SMALL, RERANKER_RUN)} after Holm). That of 1.5B parameters is at
        {say("tuned+hybrid", LARGE, LISTWISE_RUN)}, above it by little if at all: MRR {test(LARGE, LISTWISE_RUN)}, with another
        seed {test(LARGE, LISTWISE_RUN, seed=1)}. What goes far beyond all of them is to
        [read the pages](methods/rerank.md#what-it-brought)."""
    )


def write_few_rows_item() -> str:
    """What more rows did for a model of 135M parameters, as an item of a list."""
    rows = read_results("recipe_medquad_smollm2")["counts"]["rounds/1/finetune"]["rows"]
    tuned = find_effect("medquad", "tuned", SMALL)
    return to_item(
        f"""**Few rows for a model of 135M on medquad**: with some hundred of them (`benchmarks/effect/small/medquad.toml`, two
        CPU cores; an earlier run, not kept) many replies could not be read, and it lost to the question at rank 10.
        With {rows:,} rows (`recipe_medquad_smollm2.json`, `effect.json`) it comes to an MRR of {short(tuned["mrr"])}, as far as
        the 1.5B model and `templates`, and is above the question at rank 10 too."""
    )


def write_recipe_reranker_times() -> str:
    """How long the pipeline with a reranker took, and how busy its GPU was."""
    results = read_results("recipe_medquad_reranker")
    seconds, busy, reading = results["stages_s"], results["gpu_utilization_by_stage"], results["reading"]
    memory = {name: mib / 1024 for name, mib in results["gpu_memory_mib"].items()}
    trained = ((stage, results["counts"][stage]) for stage in ("rounds/1/finetune", "reranker/finetune"))
    starts = [seconds[stage] - counts["tokens"] / counts["tokens_per_s"] for stage, counts in trained]
    whole, lasted = "gpu_utilization_from_first_rollout_to_report", "from_first_rollout_to_report_s"
    earlier = ", ".join(f"{100 * one[whole]:.0f} % of {one[lasted]:,} s" for one in results["earlier"])
    return to_paragraph(
        f"""With a reranker (`recipe_medquad_reranker.json`, `run_effect.py`; one round, 4,000 training questions, one of two
        H200s and 16 cores): collection {seconds["rounds/1/collect"]} s, of which {results["first_rollouts_after_s"]} s from the
        start of the job until the first rollouts ended (what vLLM compiles was there already), SFT
        {seconds["rounds/1/finetune"]} s, the reranker {seconds["reranker/finetune"]} s, evaluation of
        {results["counts"]["evaluate"]["policies"]} policies {seconds["evaluate"]} s, {reading["seconds"]} s of them to read
        {reading["pages"]:,} pages. From the first finished rollout to the report, {results[lasted]} s, the GPU was
        {100 * results[whole]:.0f} % busy: {100 * busy["rounds/1/finetune"]:.0f} % in SFT,
        {100 * busy["reranker/finetune"]:.0f} % in the reranker's training, {100 * busy["evaluate"]:.0f} % in the evaluation,
        {100 * results["gpu_utilization_while_reading"]:.0f} % while it read. In earlier versions it had been {earlier}. What is
        left are {starts[0]:.0f} and {starts[1]:.0f} s of starts and ends of the trainings, {results["engine_to_reading_s"]} s
        from the last reply to the reading and {reading["starts_after_s"]} s until its model is loaded, statistics and report, and
        a quarter of the reading, of which nobody has seen yet what it waits for. The reranker's training took
        {memory["reranker/finetune"]:.0f} GiB of memory, SFT {memory["rounds/1/finetune"]:.0f}: on a GPU of 80 GiB halve the
        reranker's batch and double its
        `gradient_accumulation`."""
    )


def write_rounds_words() -> str:
    """What rounds after the first brought."""
    results = read_results("recipe_medquad_three_rounds")
    rounds, test = results["rounds"], results["test"]
    validation = ", ".join(short(one["tuned"]["mrr"]) for one in rounds)
    found = ", ".join(short(test[f"round{one['number']}"]["mrr"]) for one in rounds)
    both = ", ".join(short(test[f"round{one['number']}+hybrid"]["mrr"]) for one in rounds)
    took = ", ".join(f"{sum(one['stages_s'].values())} s, {sum(one['gpu_busy_s'].values())} of them on the GPU" for one in rounds)
    return to_paragraph(
        f"""**Rounds** (`recipe_medquad_three_rounds.json`, the same model, 4,000 training questions, SFT and then twice DPO on
        {rounds[-1]["rows"]:,} drawn pairs of the policy's own replies): MRR {validation} on {rounds[0]["num_questions"]}
        validation questions after the first, second and third, and {found} on the {results["test_questions"]:,} test questions
        ({both} by words and vectors). They took {took}. So the first round is what pays on medquad; the recipe's second is
        evaluated only where validation questions say that it is better."""
    )

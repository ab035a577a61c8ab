"""Options, baselines, commands and fields of requests that are gone, each with what takes its place."""

_CONSTANT = "It is a constant now; leave the option out."

_OVERLAP_INSTEAD = "Windows share a sixth of rerank.window_tokens."

_PROVIDER_INSTEAD = (
    "agent.web_search.provider (searxng, brave or serper) knows the fields of requests and answers; for any other take a tool of "
    "yours (agent.tool_modules) or an MCP server (agent.mcp_servers)."
)

_GEPA_INSTEAD = (
    "benchmarks/optimise_prompt.py has GEPA improve the instructions; give what it finds as agent.instructions, and compare two "
    "evaluations (drag-ray compare)."
)

MANUALS_INSTEAD = "Run: python benchmarks/manuals.py FOLDER, and name its documents and questions.jsonl."

RERANK_INSTEAD = "Train a reranker (--train-reranker, or finetune.method rerank)."

OPTIONS = {
    **dict.fromkeys(("serve.best_of", "evaluate.best_of", "collect.best_of"), RERANK_INSTEAD),
    **dict.fromkeys(("prompt", "optimise_prompt"), _GEPA_INSTEAD),
    **dict.fromkeys(
        (
            *("serve.ready_timeout_s", "storage.connections"),
            *("engine.image_threads", "collect.teacher.image_threads", "questions.writer.image_threads"),
            *("agent.python_interpreter.num_parallel", "agent.visit.timeout_s"),
            *("agent.web_search.num_results", "agent.web_search.timeout_s"),
            *("collect.draws_per_proposal", "process.max_judge_failure_rate", "process.part_mib"),
            *("format.max_negatives", "format.baseline_beta", "rl.validation_limit"),
            *("finetune.image_workers", "finetune.max_failures", "finetune.grpo.oapl_beta"),
        ),
        _CONSTANT,
    ),
    "rollout.tool_hosts.calls_at_once": "An actor works on one call at a time: raise num_actors, with less num_cpus each.",
    "cluster.dashboard_port": "The dashboard of a local Ray takes 8265, or the next port that is free.",
    "corpus.manual_packages": MANUALS_INSTEAD,
    **{
        f"agent.web_search.{name}": _PROVIDER_INSTEAD
        for name in ("query_field", "key_header", "results_field", "title_field", "url_field", "snippet_field")
    },
    **{
        f"{section}.{name}": _CONSTANT
        for section in ("collect", "evaluate")
        for name in (
            *("neighbours", "templates", "rm3", "hybrid", "degradation.seed"),
            *("passage.question_repeats", "passage.num_added_words", "passage.num_examples", "passage.example_chars"),
        )
    },
    **dict.fromkeys(("evaluate.num_resamples", "evaluate.num_examples", "search.num_shards"), _CONSTANT),
    **dict.fromkeys(("collect.rerank", "collect.features"), "No collection depends on it; evaluate has such options."),
    "evaluate.features.max_questions": _CONSTANT,
    **dict.fromkeys(("serve.drain_timeout_s", "questions.copied_words", "questions.max_other_pages"), _CONSTANT),
    **dict.fromkeys(("corpus.ocr_min_chars", "corpus.document_text_mib"), _CONSTANT),
    **dict.fromkeys(("evaluate.rerank.overlap_tokens", "serve.rerank.overlap_tokens"), _OVERLAP_INSTEAD),
    "corpus.document_total_cpu_s": "It is 60 times corpus.document_cpu_s now.",
    "corpus.limit_questions": "collect.limit and evaluate.limit draw questions.",
}
"""By the key of an option, as `collect.limit`, or of a section of them; another section may hold that section."""

BASELINES = {"best_of": RERANK_INSTEAD}

FIELDS = {"best_of": "no field any more: name a served model of the task rerank as reranker"}
"""Of requests to the search routes."""

COMMANDS = {
    "prompt": _GEPA_INSTEAD,
    "timeline": "`drag-ray status RUN` tells how far a collection is; the dashboards of docs/cluster.md show idle engines.",
}


def explain_option(key: str) -> str:
    """The successor of a removed option, empty for any other; the key may be written as on the command line."""
    key = key.removeprefix("--").replace("-", "_")
    return next((instead for gone, instead in OPTIONS.items() if f".{gone}." in f".{key}."), "")

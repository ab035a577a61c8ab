"""Options and commands that are gone, each with what takes its place."""

_CONSTANT = "It is a constant now; leave the option out."

OPTIONS = {
    "serve.ready_timeout_s": _CONSTANT,
    **{
        f"{section}.{name}": _CONSTANT
        for section in ("collect", "evaluate")
        for name in (
            *("neighbours.num_neighbours", "neighbours.num_terms"),
            *("passage.question_repeats", "passage.num_added_words"),
        )
    },
}
"""By the option's key, as `collect.limit`."""

COMMANDS = {
    "timeline": "`drag-ray status RUN` tells how far a collection is; the dashboards of docs/cluster.md show idle engines.",
}


def explain_option(key: str) -> str:
    """What takes the place of a removed option, empty for any other; the key may be written as on the command line."""
    return OPTIONS.get(key.removeprefix("--").replace("-", "_"), "")

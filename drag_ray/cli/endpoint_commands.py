"""Commands that ask a running endpoint. A command's docstring is its summary for the user."""

import argparse
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from drag_ray.messages import format_json, to_displayable

_REPLY_CHARS = 200
_URL = "http://127.0.0.1:8000"


@contextmanager
def _showing(url: str) -> Generator[None]:
    """Check that what is shown of an answer is there. Raises ServeError where something else than an endpoint has answered."""
    from drag_ray.errors import ServeError

    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ServeError(f"{url}: answers otherwise than an endpoint of drag_ray ({type(error).__name__}: {error}).") from None


def _search(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Search with a running endpoint: show the pages that a model's query finds for a question."""
    _add_question_options(parser)
    parser.add_argument("--top-k", type=int, default=None, help="pages to list; agent.depth by default")
    options = parser.parse_args(argv)
    wanted = _list_given(options, "question", "model", "top_k", "retrieval", "rerank", "filter")
    answer = _open_client(options).search(**wanted)
    if options.json:
        print(format_json(answer))
        return
    with _showing(options.url):
        print(to_displayable(_describe_query(answer)))
        _print_pages(answer["pages"])


def _ask(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Ask a running endpoint a question; show the agent's turns as they happen, and its answer with citations."""
    _add_question_options(parser)
    options = parser.parse_args(argv)
    for event in _open_client(options).ask(**_list_given(options, "question", "model", "retrieval", "rerank", "filter")):
        if options.json:
            print(format_json(event), flush=True)
            continue
        with _showing(options.url):
            (_print_turn if event["type"] == "turn" else _print_answer)(event)


def _canary(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Prove that an endpoint or a merged model has an adapter's weights, by comparing its probabilities with PEFT's."""
    _add_address(parser)
    parser.add_argument("adapter", type=Path, help="folder of the adapter, as RUN/finetune/adapter")
    parser.add_argument("--model", default="tuned", help="name that the endpoint gives it, or the model that it was merged into")
    parser.add_argument("--base", default="", help="its base model, as engine.model; by default the one that finetune recorded")
    help_text = "check this merged model, for example RUN/finetune/merged, instead of an endpoint"
    parser.add_argument("--merged", type=Path, default=None, metavar="FOLDER", help=help_text)
    options = parser.parse_args(argv)
    from drag_ray.engine.models.adapter import read_noted_name
    from drag_ray.engine.models.model_folder import resolve_model
    from drag_ray.finetune.outputs.served_proof import ask_folder, compute_reference, prove

    if not options.merged:
        _open_client(options).check()
    reference = compute_reference(resolve_model(options.base or read_noted_name(options.adapter)), options.adapter)
    if options.merged:
        name, ask = str(options.merged), ask_folder(options.merged)
        remedy = "Merge it again: run finetune with --finetune.merge."
    else:
        name, ask = options.model, partial(_ask_log_probabilities, options)
        remedy = "Check that the endpoint was started with it, and its log for ignored modules."
    proof = prove(reference, ask, name, remedy)
    print(
        f"{name} is this adapter: log-probabilities differ by {proof.error:.4f} a token from those of transformers and "
        f"PEFT, and the adapter changes {proof.effect:.4f}"
    )


def _ask_log_probabilities(options: argparse.Namespace, token_ids: Sequence[int]) -> list[float]:
    """The log-probability of each token but the first: of a reply of just that token to those before it."""
    from drag_ray.errors import ServeError

    client, given = _open_client(options), []
    for place in range(1, len(token_ids)):
        # vLLM's logprobs are those before allowed_token_ids, its own extension, leave nothing else to draw.
        wanted = {"prompt": list(token_ids[:place]), "allowed_token_ids": [token_ids[place]], "max_tokens": 1, "logprobs": 0}
        answer = client.complete(model=options.model, temperature=0, **wanted)
        try:
            given.append(float(answer["choices"][0]["logprobs"]["token_logprobs"][0]))
        except (LookupError, TypeError, ValueError):
            raise ServeError(f"{options.url}: answered without log-probabilities, which vLLM's endpoints give.") from None
    return given


def _mcp(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Give the tools of a running endpoint (search, read_page, ask) to an MCP client that starts this command."""
    _add_address(parser)
    options = parser.parse_args(argv)
    import asyncio

    from drag_ray.serve.search.mcp_tools import run_bridge

    asyncio.run(run_bridge(_open_client(options)))


def _add_address(parser: argparse.ArgumentParser) -> None:
    from drag_ray.serve.ingress.key import KEY_VARIABLE

    parser.description = f"{parser.description} Its key, if it has one, is taken from the environment variable {KEY_VARIABLE}."
    parser.add_argument("--url", default=_URL, help=f"address of the endpoint; {_URL} by default")


def _add_question_options(parser: argparse.ArgumentParser) -> None:
    _add_address(parser)
    parser.add_argument("question", help="the question")
    help_text = "base model or adapter, `question` for a search without a model; by default the endpoint's choice"
    parser.add_argument("--model", default="", help=help_text)
    parser.add_argument("--retrieval", choices=("bm25", "dense", "hybrid"), help="kind of search; serve.retrieval by default")
    parser.add_argument("--rerank", action=argparse.BooleanOptionalAction, help="let the endpoint's reranker reorder the pages")
    help_text = """conditions on the metadata of documents, as JSON: '{"department": "sales", "date": {"gte": "2024-01-01"}}'"""
    parser.add_argument("--filter", type=_parse_filter, metavar="JSON", help=help_text)
    parser.add_argument("--json", action="store_true", help="print the endpoint's answer as JSON, one object per line")


def _parse_filter(text: str) -> Any:
    from drag_ray.storage.json_text import parse_json

    try:
        return parse_json(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON ({error})") from None


def _open_client(options: argparse.Namespace) -> Any:
    from drag_ray.serve.client import EndpointClient
    from drag_ray.serve.ingress.key import KEY_VARIABLE

    return EndpointClient(options.url, os.environ.get(KEY_VARIABLE, ""))


def _list_given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _describe_query(answer: dict[str, Any]) -> str:
    from drag_ray.serve.config import QUESTION_ALONE

    if answer["model"] == QUESTION_ALONE:
        return "the question finds:"
    if answer["query"] is None:
        return f"{answer['model']} wrote no search; the question itself finds:"
    if answer["query_mode"] == "expand":
        return f"{answer['model']} adds: {answer['query'] or '(nothing)'}"
    return f"{answer['model']} searches: {answer['query']}"


def _print_turn(turn: dict[str, Any]) -> None:
    reply = " ".join(turn["reply"].split())[:_REPLY_CHARS]
    said = {"search": f"search: {turn['query'] or '(nothing added)'}", "invalid": f"a reply that cannot be read: {reply}"}
    if turn["action"] in said:
        print(to_displayable(f"{turn['step']}. {said[turn['action']]}"), flush=True)
        _print_pages(turn["pages"])


def _print_answer(answer: dict[str, Any]) -> None:
    print(to_displayable(answer["answer"]) or to_displayable(f"no answer (ended by {answer['stop_reason']})"))
    for citation in answer["citations"]:
        place = f"{citation['file']}#{citation['page_number']}"
        print(f"  {to_displayable(place)}" if citation["exists"] else f"  {to_displayable(place)} (there is no such page)")


def _print_pages(pages: Sequence[dict[str, Any]]) -> None:
    for page in pages:
        print(to_displayable(f"{page['rank']:>4}  {page['file']}#{page['page_number']}  {page['score']:.4g}"))
        print(f"      {to_displayable(' '.join(page['snippet'].split()))}", flush=True)


ENDPOINT_COMMANDS = {command.__name__.removeprefix("_"): command for command in (_search, _ask, _canary, _mcp)}
"""By their names; each is given a parser with its name and summary, and the arguments."""

"""The serve stage: Ray Serve keeps replicas of vLLM's application running behind one address."""

import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterable
from importlib.util import find_spec
from pathlib import Path

from ray import serve
from ray.serve.schema import LoggingConfig

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.prompts import list_shown_functions
from drag_ray.agent.record import AgentRecord
from drag_ray.agent.retrieval import require_vectors
from drag_ray.cluster.nodes import list_nodes, takes_gpus
from drag_ray.engine.models.chat_template import check_functions_shown
from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.errors import ServeError
from drag_ray.evaluate.outcome import read_question_weights
from drag_ray.extras import explain_missing
from drag_ray.serve.access.key import hash_key, read_key
from drag_ray.serve.access.limits import Limits
from drag_ray.serve.config import ServeConfig, ServeSections
from drag_ray.serve.endpoint import (
    build_curl_line,
    build_url,
    check_port_is_free,
    compute_max_lora_rank,
    read_adapters,
    resolve_adapter_dirs,
    resolve_adapters,
    resolve_index,
    wait_until_ready,
)
from drag_ray.serve.openai_app import AppSettings
from drag_ray.serve.parsers import choose_parsers, read_template
from drag_ray.serve.replica import APP_NAME, build_application
from drag_ray.serve.search.index_origin import say_other_origins
from drag_ray.stage_runs.inputs import Inputs

_logger = logging.getLogger(__name__)


def resolve_question_weights(config: ServeConfig, adapters: Collection[str]) -> dict[str, float]:
    """The weights of the question that `serve.evaluation` found for the models that are served, by their names.

    Raises:
        ServeError: it found none for any of them.
        ArtifactError: it has not finished.
        DamageError: it is not what was written.
    """
    if config.evaluation is None:
        return {}
    found = read_question_weights(config.evaluation)
    weights = {name: found[name] for name in (config.served_name, *adapters) if name in found}
    if not weights:
        raise ServeError(
            f"serve.evaluation {config.evaluation}: found weights of the question for {', '.join(found) or 'no policy'}, and "
            f"served are {', '.join((config.served_name, *adapters))}. Leave the option out, or evaluate with "
            "evaluate.question_weights."
        )
    _logger.info(f"the question counts {', '.join(f'{weight:g} for {name}' for name, weight in weights.items())}")
    return weights


_READY_TIMEOUT_S = 600.0


def run(sections: ServeSections, inputs: Inputs, block: bool = True, start_ray: Callable[[], object] = lambda: None) -> str:
    """Serve the base model and its adapters until Ctrl-C, or leave them running when `block` is False.

    Args:
        start_ray: called once all that can be wrong without Ray has been looked at.

    Returns:
        the endpoint's address, without a path. Without `block`, `ray.serve.shutdown()` ends it.

    Raises:
        ConfigError: the model is behind an endpoint, its chat template does not show the tools of an agent, the index has no
            vectors of its pages and these are to be searched, or the model that is to order pages anew is none.
        ServeError: other machines are let in without a key, the port is in use, an adapter does not fit the base model (all
            before an engine starts), or the endpoint does not come up.
        SearchIndexError: the run's index is of another layout.
        ArtifactError: the run's index is unfinished or damaged.
        MissingPackageError: vLLM is not installed, and there is no other machine.
    """
    sections.check()
    settings = sections.serve
    key = read_key(settings)
    check_port_is_free(settings.host, settings.port)
    app_settings = _build_app_settings(sections, inputs, key)
    url = build_url(settings.host, settings.port)
    start_ray()
    _check_packages()
    try:
        _deploy(settings, app_settings)
        wait_until_ready(url, _READY_TIMEOUT_S)
        _print_usage(url, key, app_settings)
        if block:
            _wait_for_a_signal()
    except BaseException:
        serve.shutdown()
        raise
    if block:
        _logger.info("shutting down")
        serve.shutdown()
    return url


def _check_packages() -> None:
    """Refuse to start without vLLM where this machine is all that there is: Ray Serve would try, and not say what is missing."""
    if len(list_nodes()) > 1:
        return
    with explain_missing():
        if find_spec("vllm") is None:
            raise ModuleNotFoundError(name="vllm")


def build(sections: ServeSections, inputs: Inputs) -> serve.Application:
    """The application that `run` deploys, for who deploys it otherwise. Errors are those of `run` before Ray is asked."""
    sections.check()
    settings = sections.serve
    return build_application(_build_app_settings(sections, inputs, read_key(settings)), settings, takes_gpus(settings.device))


def _build_app_settings(sections: ServeSections, inputs: Inputs, key: str) -> AppSettings:
    """The settings of the engines, checked to fit together."""
    settings, engine = sections.serve, sections.engine
    adapters = resolve_adapters(settings, inputs.find("finetune"))
    model_dir = resolve_model(engine.model)
    records = read_adapters(adapters, model_dir, engine.model, sections.agent)
    template, reasons = read_template(model_dir)
    agents = (sections.agent, *(record.agent for record in records.values()))
    for agent in agents:
        check_functions_shown(engine.model, list_shown_functions(agent))
    index_dir = resolve_index(inputs.find("index"))
    if index_dir:
        _check_searches(Path(index_dir).parent, settings, agents)
    say_other_origins(index_dir, records, settings.evaluation)
    return AppSettings(
        engine=engine,
        served_name=settings.served_name,
        adapters={name: str(path) for name, path in adapters.items()},
        adapter_places=max(len(adapters), settings.adapter_places if settings.adapter_dirs else 1),
        max_lora_rank=compute_max_lora_rank(settings, adapters),
        limits=Limits(
            settings.max_body_mib,
            settings.max_tokens,
            settings.max_sequences,
            settings.max_question_chars,
            settings.grammars,
            settings.max_reply_s,
        ),
        max_queued_requests=settings.max_queued_requests,
        max_wait_s=settings.max_wait_s,
        key=hash_key(key) if key else None,
        adapter_dirs=resolve_adapter_dirs(settings),
        agent=AgentRecord(agent=sections.agent),
        index_dir=index_dir,
        parsers=choose_parsers(settings, template, reasons, list(records.values())),
        retrieval=settings.retrieval,
        rerank=settings.rerank,
        telemetry=sections.telemetry,
        question_weights=resolve_question_weights(settings, adapters),
    )


def _check_searches(index_dir: Path, settings: ServeConfig, agents: Iterable[AgentConfig]) -> None:
    """Refuse what an index lacks of that which is to be searched, and a model for ordering pages that is none."""
    if settings.rerank.model:
        from drag_ray.engine.encoders.reranker_files import find_files, say_other_index

        say_other_index(find_files(settings.rerank), index_dir / "search_index")
    require_vectors(index_dir, settings.retrieval, "serve.retrieval")
    for agent in agents:
        agent.load_tools().check_index(index_dir)
        require_vectors(index_dir, agent.retrieval, "agent.retrieval")


def _deploy(settings: ServeConfig, app_settings: AppSettings) -> None:
    use_gpu = takes_gpus(settings.device)
    _logger.info(f"starting {max(1, settings.num_replicas)} engine(s) on {'GPU' if use_gpu else 'CPU'}, about a minute")
    # Ray Serve's own processes only warn.
    serve.start(http_options={"host": settings.host, "port": settings.port}, logging_config=LoggingConfig(log_level="WARNING"))
    try:
        serve.run(build_application(app_settings, settings, use_gpu), name=APP_NAME, route_prefix="/")
    except RuntimeError as error:
        raise ServeError(
            f"the engine did not start: {error}\nIts log is in the Ray dashboard under Serve. "
            "If memory ran out, lower engine.max_model_len or engine.max_num_seqs."
        ) from error


def _print_usage(url: str, key: str, app_settings: AppSettings) -> None:
    names = [app_settings.served_name, *app_settings.adapters]
    _logger.info(f"serving {', '.join(names)} at {url}/v1")
    _logger.info(build_curl_line(url, names[-1], bool(key)))
    _logger.info(app_settings.parsers.describe())
    if app_settings.index_dir:
        _logger.info(f'drag-ray search "your question" --url {url}')
    _logger.info("Ctrl-C ends it")


def _wait_for_a_signal() -> None:
    """Return on Ctrl-C, or when the job is asked to end."""
    wanted = threading.Event()
    # Who else looks at signals (`interruption`) must not take this one for its own when the handlers are put back.
    wakeup_fd = signal.set_wakeup_fd(-1)
    handlers = {number: signal.signal(number, lambda *_: wanted.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        wanted.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)

"""The stages as data: which options and which version make a stage run again."""

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drag_ray.cli.main import main
from drag_ray.cluster import connection, ledger
from drag_ray.cluster.connection import ClusterConfig
from drag_ray.config import load
from drag_ray.errors import ArtifactError, BudgetError, ConfigError, DragRayError
from drag_ray.pipeline import runner
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import compute_identity, run_stage
from drag_ray.pipeline.stages import APART, STAGES, Stage
from drag_ray.pipeline.status import format_status, read_status
from drag_ray.rollout import engine_pool
from drag_ray.stage_runs.damage import find_damage, list_finished
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    for name in STAGES:
        finish(tmp_path, name)
    return tmp_path


def configure(run_dir: Path, *options: str) -> RunConfig:
    return load(RunConfig, ["--run-dir", str(run_dir), *options])


def changed_by(run_dir: Path, *options: str) -> set[str]:
    before, after = configure(run_dir), configure(run_dir, *options)
    return {
        name
        for name, stage in STAGES.items()
        if compute_identity(stage, before).fingerprint != compute_identity(stage, after).fingerprint
    }


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ("--search.operator and", {"index"}),
        ("--agent.top-k 5", {"collect", "rl", "evaluate"}),
        ("--agent.question-words all", {"tune", "collect", "rl", "evaluate"}),
        ("--tune.limit 50", {"tune"}),
        (
            "--agent.image-searches 1",
            {"collect", "rl", "evaluate"},
        ),  # on record, so that rows need no option
        ("--finetune.epochs 7", {"finetune"}),
        ("--engine.model other", {"questions", "collect", "finetune", "rl", "evaluate"}),
        ("--engine.max-model-len 4096", {"questions", "collect", "rl", "evaluate"}),
        ("--engine.adapter other", {"questions", "collect", "finetune", "rl", "evaluate"}),
        ("--no-engine.seeds --no-engine.logprobs", {"questions", "collect", "rl"}),
        ("--questions.limit 50", {"questions"}),
        ("--corpus.test-fraction 0.5", {"index", "questions"}),
        ("--rollout.num-engines 8 --engine.max-num-seqs 512 --cluster.num-cpus 3", set()),
        ("--finetune.dpo.beta 0.3 --rl.max-kl 2", set()),  # not of what is chosen, and a limit
        ("--finetune.grpo.kl-weight 0", {"rl"}),
        ("--finetune.sft.mask search_only", {"finetune"}),
        ("--finetune.method dpo", {"finetune"}),
    ],
)
def test_an_option_changes_the_stages_that_depend_on_it(run_dir: Path, options: str, changed: set[str]) -> None:
    assert changed_by(run_dir, *options.split()) == changed


def test_the_code_of_a_users_tool_counts_where_the_tool_is_called(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = run_dir / "tool_that_changes.py"
    glossary = (
        "from drag_ray.tools.function import Arguments\nfrom drag_ray.tools.tool import Tool\n"
        "TOOL = Tool('glossary', 'What a word means.', Arguments, None)\n"
    )
    module.write_text(glossary)
    monkeypatch.syspath_prepend(run_dir)
    config = configure(run_dir, "--agent.tool-modules", '["tool_that_changes"]')
    before = {name: compute_identity(stage, config).fingerprint for name, stage in STAGES.items()}
    module.write_text(glossary + "# another answer\n")
    after = {name: compute_identity(stage, config).fingerprint for name, stage in STAGES.items()}
    assert {name for name in STAGES if before[name] != after[name]} == {"collect", "rl", "evaluate"}


@pytest.mark.parametrize("name", ["process", "evaluate"])
def test_another_adapter_in_the_folder_of_the_judges_counts_where_it_judges(run_dir: Path, name: str) -> None:
    stage, adapter = STAGES[name], run_dir / "adapter"
    adapter.mkdir()
    named = (f"--{name}.judge.engine.adapter", str(adapter))
    asked, resting = configure(run_dir, *named, f"--{name}.judge.enabled"), configure(run_dir, *named)
    before = [compute_identity(stage, config).fingerprint for config in (asked, resting)]
    (adapter / "adapter_model.safetensors").write_text("another")
    after = [compute_identity(stage, config).fingerprint for config in (asked, resting)]
    assert (before[0] == after[0], before[1] == after[1]) == (False, True)


TEACHER = ("--collect.teacher", '{"backend": "openai", "model": "large", "endpoint": {"address": "http://a"}}')


@pytest.mark.seconds
def test_a_teacher_writes_in_the_policys_place_and_another_student_leaves_its_rollouts(run_dir: Path) -> None:
    assert changed_by(run_dir, *TEACHER) == {"collect"}
    first, other = configure(run_dir, *TEACHER), configure(run_dir, *TEACHER, "--engine.model", "other")
    collect = STAGES["collect"]
    assert compute_identity(collect, first).fingerprint == compute_identity(collect, other).fingerprint
    assert compute_identity(collect, first).config["engine"]["model"] == "large"


def test_what_cannot_learn_from_an_endpoint_is_refused_at_once(run_dir: Path) -> None:
    with pytest.raises(ConfigError, match="grpo learns from the tokens that the policy drew"):
        configure(run_dir, *TEACHER, "--finetune.method", "grpo")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--engine.backend", "openai", "--engine.endpoint.address", "http://a"), r"finetune trains weights.*collect\.teacher"),
        (("--format.formats", '["dpo"]'), r"method sft reads rows of the format sft_query, and format\.formats has dpo"),
        (
            ("--finetune.method", "grpo", "--finetune.grpo.loss", "rloo"),
            r"loss rloo is made .* baseline others, .* is mean",
        ),
    ],
)
def test_no_stage_works_if_one_cannot_or_would_miss_its_rows(run_dir: Path, options: tuple[str, ...], words: str) -> None:
    config = configure(run_dir, *options)
    with pytest.raises(ConfigError, match=words):
        runner.run_stages(runner.list_pipeline(config), config, lambda: pytest.fail("Ray was started"))


@pytest.mark.seconds
def test_what_machines_cost_is_noted_beside_the_outcome(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_code", lambda stage, config, folder: time.sleep(0.05) or {"rows": 1})
    monkeypatch.setattr(runner, "count_machines", lambda: (8, 64))
    free, priced = configure(run_dir), configure(run_dir, "--cost.gpu-hour", "3600000", "--cost.budget", "1e9")
    manifest = run_stage(STAGES["process"], priced)
    assert manifest.spent["cost"] == pytest.approx(manifest.spent["gpu_hours"] * 3.6e6, rel=0.05)
    assert manifest.spent["cost"] >= 0.05 * 8000
    assert manifest.counts == {"rows": 1}
    assert run_stage(STAGES["process"], free) == manifest  # skipped: prices change nothing
    assert find_damage(run_dir / "process", whole=True) == []
    assert "machines_gpu_hours" in format_status(read_status(run_dir))


@pytest.fixture
def in_background() -> Iterator[None]:
    """A process as a shell starts it there: Ctrl-C is not for it."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, earlier)


@pytest.mark.usefixtures("in_background")
def test_a_spent_budget_stops_a_stage_which_goes_on_with_a_larger_one(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = list[bool]()

    def run(stage: Stage, config: RunConfig, folder: StageFolder) -> dict[str, Any]:
        resumed.append(folder.resumed)
        if len(resumed) == 1:
            time.sleep(60)
        return {}

    monkeypatch.setattr(runner, "run_code", run)
    monkeypatch.setattr(runner, "count_machines", lambda: (8, 64))
    monkeypatch.setattr(ledger, "INTERVAL_S", 0.01)
    little, more = (configure(run_dir, "--cost.gpu-hour", "1e6", "--cost.budget", budget) for budget in ("1", "1e9"))
    for _ in range(2):
        with pytest.raises(BudgetError, match=r"larger budget"):
            run_stage(STAGES["collect"], little)
    run_stage(STAGES["collect"], more)
    assert resumed == [False, True]


@pytest.mark.seconds
def test_options_of_a_training_method_count_where_it_is_chosen(run_dir: Path) -> None:
    identities = [
        compute_identity(STAGES["finetune"], configure(run_dir, "--finetune.method", "dpo", *more)).fingerprint
        for more in ((), ("--finetune.dpo.beta", "0.3"), ("--finetune.sft.mask", "search_only"))
    ]
    assert identities[0] == identities[2] != identities[1]


def test_an_input_that_changed_changes_its_readers_and_one_that_lacks_names_the_job_to_run(run_dir: Path, tmp_path: Path) -> None:
    before = compute_identity(STAGES["format"], configure(run_dir)).fingerprint
    with StageFolder(run_dir / "process", Identity("process", {"other": 1}, {})) as folder:
        folder.finish({})
    assert compute_identity(STAGES["format"], configure(run_dir)).fingerprint != before
    with pytest.raises(ArtifactError, match=r"jobs/process\.py"):
        compute_identity(STAGES["format"], configure(tmp_path / "nothing"))


def test_own_documents_are_part_of_the_index(run_dir: Path, tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "a.jsonl").write_text("{}")
    config = configure(run_dir, "--corpus.documents", str(documents), "--corpus.questions", "")
    before = compute_identity(STAGES["index"], config).fingerprint
    (documents / "b.jsonl").write_text("{}")
    assert compute_identity(STAGES["index"], config).fingerprint != before
    with pytest.raises(ConfigError, match=r"corpus\.documents .*no such file or folder"):
        compute_identity(STAGES["index"], configure(run_dir, "--corpus.documents", str(tmp_path / "nothing")))
    with pytest.raises(ConfigError, match=r"'manuals': no such file or folder\. .* Run: python benchmarks/manuals\.py FOLDER"):
        compute_identity(STAGES["index"], configure(run_dir, "--corpus.documents", "manuals"))


def test_evaluation_does_without_training_that_was_not_begun(run_dir: Path) -> None:
    (run_dir / "finetune" / artifacts.MANIFEST_NAME).unlink()
    with pytest.raises(ArtifactError, match=r"jobs/finetune\.py"):
        read_inputs("evaluate", run_dir)
    for name in ("questions", "finetune"):
        shutil.rmtree(run_dir / name)
    assert read_inputs("evaluate", run_dir) == {"index"}


def test_a_finished_stage_is_skipped_and_a_failed_one_is_gone_on_with(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[bool] = []

    def run(stage: Stage, config: RunConfig, folder: StageFolder) -> dict[str, Any]:
        runs.append(folder.resumed)
        if len(runs) == 1:
            raise DragRayError("stopped")
        return {"rows": 1}

    monkeypatch.setattr(runner, "run_code", run)
    config = configure(run_dir)
    with pytest.raises(DragRayError, match="stopped"):
        run_stage(STAGES["process"], config)
    run_stage(STAGES["process"], config)
    run_stage(STAGES["process"], config)
    assert runs == [False, True]
    assert artifacts.require_manifest(run_dir / "process").counts == {"rows": 1}


@pytest.mark.seconds
def test_ray_starts_for_work_alone_and_once(run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    starts: list[str] = []

    @contextlib.contextmanager
    def connect(config: ClusterConfig) -> Iterator[None]:
        starts.append(config.address)
        yield

    @contextlib.contextmanager
    def keep_engines() -> Iterator[None]:
        starts.append("engines")
        yield

    monkeypatch.setattr(connection, "connect", connect)
    monkeypatch.setattr(engine_pool, "keep_engines", keep_engines)
    monkeypatch.setattr(runner, "run_code", lambda stage, config, folder: {})
    assert main(["process", "--run-dir", str(run_dir / "nothing")]) == 1
    assert main(["index", "--run-dir", str(run_dir), "--corpus.documents", str(run_dir / "nothing")]) == 2
    monkeypatch.delenv("DRAG_RAY_API_KEY", raising=False)
    assert main(["serve", "--run-dir", str(run_dir), "--serve.host", "0.0.0.0"]) == 1
    assert starts == []
    assert main(["pipeline", "--run-dir", str(run_dir), "--cluster.address", "here"]) == 0
    assert main(["pipeline", "--run-dir", str(run_dir), "--cluster.address", "here"]) == 0
    assert starts == ["here", "engines"]
    in_line = [name for name, stage in STAGES.items() if not stage.switch and name not in APART]
    assert capsys.readouterr().out.count("unchanged, skipped") == len(in_line)
    assert main(["pipeline", "--run-dir", str(run_dir / "other"), "--no-rollout.keep-engines"]) == 0
    assert starts == ["here", "engines", ""]


def test_the_pipeline_chooses_a_search_where_it_is_asked_for_alone(run_dir: Path) -> None:
    names = [stage.name for stage in runner.list_pipeline(configure(run_dir))]
    assert names == ["index", "collect", "process", "format", "finetune", "evaluate"]
    names = [stage.name for stage in runner.list_pipeline(configure(run_dir, "--tune-search"))]
    assert names == ["index", "tune", "collect", "process", "format", "finetune", "evaluate"]


def test_the_pipeline_has_questions_written_where_documents_alone_are_given(run_dir: Path) -> None:
    for options in (("--corpus.questions", ""), ("--corpus.documents", str(run_dir))):
        names = [stage.name for stage in runner.list_pipeline(configure(run_dir, *options))]
        assert names == ["index", "questions", "collect", "process", "format", "finetune", "evaluate"]
    given = configure(run_dir, "--corpus.documents", str(run_dir), "--corpus.questions", "mine.jsonl")
    assert "questions" not in [stage.name for stage in runner.list_pipeline(given)]
    assert configure(run_dir, "--corpus.documents", "commands").corpus.questions == "commands"


def test_a_stage_with_failures_serves_its_readers_and_is_tried_again(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter([{"finished": 7, "unfinished": 3}, {"finished": 10, "unfinished": 0}])
    monkeypatch.setattr(runner, "run_code", lambda stage, config, folder: next(outcomes) | {"resumed": folder.resumed})
    config = configure(run_dir)
    run_stage(STAGES["collect"], config)
    first = compute_identity(STAGES["process"], config).fingerprint
    assert run_stage(STAGES["collect"], config).counts == {"finished": 10, "unfinished": 0, "resumed": True}
    assert compute_identity(STAGES["process"], config).fingerprint != first
    run_stage(STAGES["collect"], config)  # skipped: a third outcome would end the iterator


def test_work_that_was_set_aside_is_tried_again_with_more_tries(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter([{"finished": 7, "set_aside": 3}, {"finished": 10, "set_aside": 0}])
    monkeypatch.setattr(runner, "run_code", lambda stage, config, folder: next(outcomes) | {"resumed": folder.resumed})
    config = configure(run_dir)
    more = config.model_copy(update={"rollout": config.rollout.model_copy(update={"max_tries": config.rollout.max_tries + 1})})
    run_stage(STAGES["collect"], config)
    assert run_stage(STAGES["collect"], config).counts["finished"] == 7  # skipped
    assert run_stage(STAGES["collect"], more).counts == {"finished": 10, "set_aside": 0, "resumed": True}
    assert run_stage(STAGES["collect"], config).counts["finished"] == 10  # skipped


def test_what_cannot_be_looked_at_among_the_documents_does_not_end_the_start_and_home_is_found(
    run_dir: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = tmp_path_factory.mktemp("documents")
    (documents / "broken.pdf").symlink_to(documents / "nothing")
    (documents / "loop.pdf").symlink_to(documents / "loop.pdf")
    before = compute_identity(STAGES["index"], configure(run_dir, "--corpus.documents", str(documents)))
    (documents / "new.pdf").write_bytes(b"")
    after = compute_identity(STAGES["index"], configure(run_dir, "--corpus.documents", str(documents)))
    assert before.fingerprint != after.fingerprint
    monkeypatch.setenv("HOME", str(run_dir))
    config = configure(run_dir, "--corpus.documents", "~")
    assert "documents" in compute_identity(STAGES["index"], config).inputs


def finish(run_dir: Path, address: str, **identity: Any) -> None:
    stage = next(part for part in address.split("/") if part in STAGES)
    with StageFolder(run_dir / address, Identity(stage, {}, {"made": address}, address=address, **identity)) as folder:
        folder.finish({})


def test_another_split_makes_the_rows_anew_after_an_import(tmp_path: Path) -> None:
    """Imported trajectories do not come from the index, so only format itself can know that the split has changed."""
    for name in ("collect", "process"):
        finish(tmp_path, name)
    without = compute_identity(STAGES["format"], configure(tmp_path)).fingerprint
    finish(tmp_path, "index")
    first = compute_identity(STAGES["format"], configure(tmp_path)).fingerprint
    with StageFolder(tmp_path / "index", Identity("index", {"corpus": {"seed": 1}}, {})) as folder:
        folder.finish({})
    assert len({without, first, compute_identity(STAGES["format"], configure(tmp_path)).fingerprint}) == 3


def read_inputs(stage: str, run_dir: Path, *options: str) -> set[str]:
    return set(compute_identity(STAGES[stage], configure(run_dir, *options)).inputs)


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("collect", "--agent.retrieval dense"),
        ("format", "--format.formats relevance --format.relevance-retrieval hybrid"),
        ("evaluate", "--agent.retrieval dense"),
        ("evaluate", "--evaluate.baselines dense"),
        ("evaluate", "--evaluate.baselines index_hybrid"),
        ("evaluate", "--evaluate.baselines rerank --evaluate.rerank.retrieval hybrid"),
        ("evaluate", "--evaluate.baselines features --evaluate.features.retrieval dense"),
    ],
)
def test_vectors_that_were_made_again_count_where_they_are_searched_alone(run_dir: Path, stage: str, options: str) -> None:
    assert "embed" in read_inputs(stage, run_dir, *options.split())
    by_words = options.replace("hybrid", "bm25").replace("dense", "bm25") if "retrieval" in options else ""
    assert "embed" not in read_inputs(stage, run_dir, *by_words.split())


def test_validation_questions_alone_make_an_evaluation_depend_on_the_training_rows(run_dir: Path) -> None:
    validation = ("--evaluate.split", "validation")
    assert read_inputs("evaluate", run_dir) == {"index", "questions", "finetune"}
    assert read_inputs("evaluate", run_dir, *validation) == {"index", "questions", "finetune", "format"}
    (run_dir / "format" / "manifest.json").unlink()  # unfinished rows do not hold up the test questions
    assert read_inputs("evaluate", run_dir) == {"index", "questions", "finetune"}
    with pytest.raises(ArtifactError, match=r"format"):
        read_inputs("evaluate", run_dir, *validation)


def test_named_instances_stand_beside_each_other_and_readers_say_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_code", lambda stage, config, folder: {"epochs": config.finetune.epochs})
    for name in ("index", "collect", "process", "format"):
        finish(tmp_path, name)
    for name, epochs in (("short", "1"), ("long", "9")):
        run_stage(STAGES["finetune"], configure(tmp_path, "--name", name, "--finetune.epochs", epochs))
    manifest = artifacts.require_manifest(tmp_path / "finetune" / "long")
    assert (manifest.stage, manifest.counts, manifest.command) == (
        "finetune/long",
        {"epochs": 9},
        "python jobs/finetune.py --name long --verify",
    )
    with pytest.raises(ConfigError, match=r"instances with names \(long, short\)\. Say which .*--reads finetune=finetune/long"):
        compute_identity(STAGES["evaluate"], configure(tmp_path))
    options = ("--name", "of_long", "--reads", "finetune=finetune/long")
    run_stage(STAGES["evaluate"], configure(tmp_path, *options))
    read = artifacts.require_manifest(tmp_path / "evaluate" / "of_long")
    assert read.origin["reads"] == {"index": "index", "finetune": "finetune/long"}
    assert read.origin["inputs"]["finetune"] == manifest.outcome_fingerprint
    lineage = runner.open_inputs(STAGES["evaluate"], configure(tmp_path, *options)).read_lineage()
    assert {name: found.stage for name, found in lineage.items()} == {
        "index": "index",
        "finetune": "finetune/long",
        "format": "format",
    }
    assert [path.relative_to(tmp_path).as_posix() for path in list_finished(tmp_path)] == [
        *("collect", "evaluate/of_long", "finetune/long", "finetune/short", "format", "index", "process")
    ]


def test_an_instance_is_what_it_is_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(runner, "run_code", lambda stage, config, folder: {})
    finish(tmp_path, "collect")
    run_stage(STAGES["process"], configure(tmp_path))
    (tmp_path / "process").rename(tmp_path / "moved")
    (tmp_path / "process").mkdir()
    (tmp_path / "moved").rename(tmp_path / "process" / "first")
    run_stage(STAGES["process"], configure(tmp_path, "--name", "first"))
    assert "process/first: unchanged, skipped" in capsys.readouterr().out


def test_a_stage_with_a_name_never_lies_within_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_code", lambda stage, config, folder: {})
    finish(tmp_path, "collect")
    run_stage(STAGES["process"], configure(tmp_path))
    with pytest.raises(ConfigError, match=r"'mine': .*process holds this stage without a name.*leave out --name"):
        run_stage(STAGES["process"], configure(tmp_path, "--name", "mine"))
    shutil.rmtree(tmp_path / "process")
    run_stage(STAGES["process"], configure(tmp_path, "--name", "mine"))
    with pytest.raises(ConfigError, match=r"process holds instances with names \(mine\).*--name NAME"):
        run_stage(STAGES["process"], configure(tmp_path))


def test_a_scope_has_stages_of_its_own_and_the_index_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_code", lambda stage, config, folder: {"folder": str(folder.path)})
    finish(tmp_path, "index")
    config = configure(tmp_path, "--scope", "rounds/2")
    runner.run_stages([STAGES[name] for name in ("collect", "process", "format")], config)
    manifest = artifacts.require_manifest(tmp_path / "rounds" / "2" / "format")
    assert (manifest.stage, manifest.origin["reads"]) == ("rounds/2/format", {"process": "rounds/2/process", "index": "index"})
    with pytest.raises(ArtifactError, match=r"rounds/3/collect: no manifest\.json.*jobs/collect\.py --scope rounds/3"):
        run_stage(STAGES["process"], configure(tmp_path, "--scope", "rounds/3"))
    elsewhere = configure(tmp_path, "--scope", "rounds/3", "--reads", "collect=rounds/2/collect")
    assert compute_identity(STAGES["process"], elsewhere).reads == {"collect": "rounds/2/collect"}


def test_a_round_is_trained_on_from_the_adapter_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_code", lambda stage, config, folder: {})
    finish(tmp_path, "index")
    adapter_dir = tmp_path / "finetune" / "adapter"
    artifacts.write_text(adapter_dir / "adapter_model.safetensors", "weights")
    options = ("--scope", "rounds/2", "--engine.adapter", str(adapter_dir))
    runner.run_stages([STAGES[name] for name in ("collect", "process", "format", "finetune")], configure(tmp_path, *options))
    manifest = artifacts.require_manifest(tmp_path / "rounds" / "2" / "finetune")
    assert manifest.origin["reads"] == {"format": "rounds/2/format", "index": "index"}
    assert manifest.origin["config"]["engine"]["adapter"] == str(adapter_dir)

    def fingerprint(*more: str) -> str:
        return compute_identity(STAGES["finetune"], configure(tmp_path, *options, *more)).fingerprint

    before, from_base = fingerprint(), fingerprint("--finetune.start", "base")
    assert before == manifest.fingerprint != from_base
    artifacts.write_text(adapter_dir / "adapter_model.safetensors", "other weights")
    assert fingerprint() != before
    assert fingerprint("--finetune.start", "base") == from_base


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--name", "../elsewhere"), "name: .*expected letters"),
        (("--name", "a/b"), "name: .*expected letters"),
        (("--scope", "/tmp"), "scope: .*expected letters"),
        (("--name", "collect"), "'collect' is the name of a stage"),
        (("--reads", "adapter=x"), "reads: .*'adapter=x' is not stage=address"),
        (("--reads", "collect=rounds/2/process"), "no collect stage of a run"),
        (("--reads", "collect=../collect"), "no collect stage of a run"),
    ],
)
def test_addresses_that_are_none_are_refused(tmp_path: Path, options: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compute_identity(STAGES["process"], configure(tmp_path, *options))

"""Interface of the package for programs and notebooks: quick to import, the same options and sentences as on the command line."""

import ast
import asyncio
import re
from pathlib import Path

import polars as pl
import pytest
from cpu_time import run_quickly
from factories import build_search, build_trajectory, build_turn, write_trajectories
from finished_cases import write_evaluation
from notebook_cells import read_cells, run_cells
from python_examples import list_documented, list_reading, run_examples
from scripted_engine import ScriptedEngine
from small_index import finish_index
from small_run import write_small_run

import drag_ray
from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import Policy
from drag_ray.api.agent import Agent
from drag_ray.cli.main import main
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Request
from drag_ray.errors import ArtifactError, ConfigError, DamageError, DataError, TrainError
from drag_ray.pipeline.stages import SERVE, STAGES
from drag_ray.rollout.options import WorkerOptions
from drag_ray.storage import artifacts
from drag_ray.transcripts.transcript import Transcript
from drag_ray.types import Evidence, Page, Question

ROOT = Path(drag_ray.__file__).parent
PAGES = [Page("a.pdf", number, 2, text) for number, text in ((1, "The rotor turns."), (2, "The spar bends."))]
QUESTIONS = [Question("q1", "What turns?", (Evidence("a.pdf", 1),), split="train")]
RANKS = {"base": [1, 4, None, 9], "tuned": [4, 4, 2, 8]}


@pytest.mark.seconds
def test_the_package_is_imported_at_once_and_brings_nothing_heavy() -> None:
    code = (
        "import sys, drag_ray; "
        "assert {n for n in sys.modules if n.startswith('drag_ray')} == {'drag_ray', 'drag_ray.usage_reports'}; "
        "drag_ray.open_run; "
        "print([n for n in ('ray', 'torch', 'vllm', 'transformers', 'polars', 'tantivy', 'matplotlib') if n in sys.modules])"
    )
    assert run_quickly("-c", code, cwd=ROOT.parent).strip() == "[]"


def test_type_checkers_are_told_of_the_names_that_there_are_and_every_stage_is_a_method_of_a_run() -> None:
    stub = ast.parse((ROOT / "__init__.pyi").read_text())
    imported = {f"{node.module}.{alias.asname}" for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    [listed] = [ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign)]
    assert set(listed) == set(drag_ray.__all__)
    homes = {name: f"drag_ray.{module}.{name}" for name, module in vars(drag_ray)["_MODULES"].items() if name != module}
    assert imported == {*homes.values(), "drag_ray.errors"}
    assert all(getattr(drag_ray, name) is not None for name in drag_ray.__all__)
    assert (ROOT / "py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'opne_run'"):
        _ = getattr(drag_ray, "opne" + "_run")
    for name in (*STAGES, SERVE.name):
        assert getattr(drag_ray.Run, name).__doc__, f"add the stage {name} to drag_ray/api/run.py"


def test_options_are_those_of_a_file_and_of_the_call_and_a_secret_is_none(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("seed = 3\n[agent]\ntop_k = 4\nmax_iterations = 2\n")
    config = drag_ray.open_run(tmp_path, path, agent={"top_k": 6}).config
    assert (config.run_dir, config.seed, config.agent.top_k, config.agent.max_iterations) == (tmp_path, 3, 6, 2)
    with pytest.raises(ConfigError, match=r"options: serve\.api_key: do not put a secret here") as error:
        drag_ray.open_run(tmp_path, serve={"api_key": "s3cret"})
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "arguments"),
    [({"agent": {"top_k": 0}}, ["--agent.top-k", "0"]), ({"collect": {"presets": ["warm"]}}, ["--collect.presets", "warm"])],
)
def test_a_wrong_option_is_refused_with_the_sentence_of_the_command_line(
    options: dict, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        drag_ray.open_run(tmp_path).collect(**options)
    assert main(["collect", "--run-dir", str(tmp_path), *arguments]) == 2
    said = capsys.readouterr().err.removeprefix("drag-ray collect: ").replace("command line: ", "options: ")
    assert said.replace("got '0'", "got 0").strip() == str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"colect": {"limit": 3}}, r"options: unknown key 'colect'\. Did you mean 'collect'\? Allowed here: agent, .*telemetry"),
        ({"collect": {"limt": 3}}, r"options: unknown key 'collect\.limt'. Did you mean 'limit'\?"),
        ({"finetune": {"epochs": 3}}, "options: unknown key 'finetune'. Allowed here: agent, collect, cost, engine, name, reads"),
        ({"run_dir": "elsewhere"}, "options: unknown key 'run_dir'"),
    ],
)
def test_an_option_that_a_stage_does_not_depend_on_is_refused(options: dict, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        drag_ray.open_run(tmp_path).collect(**options)


def test_a_stage_without_its_input_says_what_the_command_line_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = drag_ray.open_run(tmp_path)
    with pytest.raises(ArtifactError) as error:
        run.process()
    assert main(["process", "--run-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"drag-ray process: ArtifactError: {error.value}\n"
    with pytest.raises(ArtifactError, match=r"so this stage has not finished. Run: python jobs/index\.py"):
        run.open_searcher()
    with pytest.raises(ArtifactError, match=r"Run: python jobs/evaluate\.py"):
        run.read_results()
    with pytest.raises(DataError, match="no such file or folder"):
        run.read_trajectories()
    with pytest.raises(ConfigError, match="no stage 'collct'"):
        run.read_trajectories("collct")


def test_a_stage_is_named_in_its_call(tmp_path: Path) -> None:
    run = drag_ray.open_run(tmp_path / "run")
    with pytest.raises(ArtifactError, match=r"Run: python jobs/collect\.py"):
        run.process(name="again")
    with pytest.raises(ConfigError, match="name: Value error, expected letters, digits"):
        run.process(name="two/names")


def test_an_index_is_searched_and_one_of_another_version_is_refused(tmp_path: Path) -> None:
    finish_index(tmp_path, PAGES, QUESTIONS)
    run = drag_ray.open_run(tmp_path)
    assert [(hit.file, hit.page_number) for hit in run.open_searcher().search("spar", top_k=3)] == [("a.pdf", 2)]
    assert run.read_questions().select("id", "question", "split").rows() == [("q1", "What turns?", "train")]
    manifest = tmp_path / "index" / artifacts.MANIFEST_NAME
    record = {"stage": "index", "fingerprint": "0"}
    artifacts.write_json(manifest, record | {"sha256": artifacts.compute_fingerprint(record)})
    with pytest.raises(DamageError, match="as one of an earlier version"):
        drag_ray.open_run(tmp_path).open_searcher()


def test_trajectories_are_a_frame_whether_they_are_of_a_named_stage_or_not(tmp_path: Path) -> None:
    rollouts = [build_trajectory(build_search("rotor", rank), id=f"q1/default/{rank}") for rank in (1, 9)]
    table = schemas.to_table(rollouts, schemas.TRAJECTORIES)
    for place in ("collect", "rounds/2/collect"):
        artifacts.write_parquet(tmp_path / place / "trajectories" / "1.parquet", table)
    run = drag_ray.open_run(tmp_path)
    frame = run.read_trajectories()
    assert frame["id"].to_list() == ["q1/default/1", "q1/default/9"]
    ranks = frame.explode("turns").select(pl.col("turns").struct.field("ranking"))["ranking"]
    assert ranks.struct.field("evidence_rank").to_list() == [1, 9]
    assert run.read_trajectories(scope="rounds/2").equals(frame)
    assert drag_ray.read_trajectories(tmp_path).equals(frame)


@pytest.mark.seconds
def test_evaluations_are_frames_and_compared_as_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_evaluation(tmp_path / "evaluate", RANKS)
    run = drag_ray.open_run(tmp_path)
    results = run.read_results()
    assert results.filter(policy="tuned")["first_search_rank"].to_list() == RANKS["tuned"]
    measures = run.read_measures().filter(measure="mrr")
    assert dict(measures.select("policy", "value").iter_rows())["tuned"] == pytest.approx((1 / 4 + 1 / 4 + 1 / 2 + 1 / 8) / 4)
    compared = drag_ray.compare(path, tmp_path, a_policies=["base"], b_policies=["tuned"])
    assert compared.to_frame().filter(measure="mrr")["policy"].to_list() == ["A:base", "B:tuned"]
    assert main(["compare", str(path), str(tmp_path), "--a-policies", "base", "--b-policies", "tuned"]) == 0
    assert capsys.readouterr().out == str(compared)
    assert main(["score", str(path), "--top-k", "5", "--measures", "mrr"]) == 0
    assert capsys.readouterr().out == str(run.score(top_k=5, measures=["mrr"]))
    with pytest.raises(ConfigError, match="got inf, expected a finite number that is not negative"):
        drag_ray.compare(path, path, prompt_price=float("inf"))


def test_transcripts_are_chosen_as_by_show_and_notebooks_escape_what_others_have_written(tmp_path: Path) -> None:
    hostile = "</pre><script>alert(1)</script>"
    rollouts = [
        build_trajectory(build_search("rotor", rank), build_turn(raw_text=hostile), id=f"q1/default/{rank}") for rank in (9, 1)
    ]
    write_trajectories(tmp_path / "collect/trajectories/1.parquet", rollouts)
    run = drag_ray.open_run(tmp_path)
    [best] = run.read_transcripts(sort="rank", limit=1)
    assert best.describe_outcome() == "found, best rank 1"
    assert [found.trajectory.id for found in run.read_transcripts(outcome="found")] == ["q1/default/1"]
    shown = best._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    with pytest.raises(ConfigError, match="'lost': expected one of found, not-found, errors"):
        run.read_transcripts(outcome="lost")  # type: ignore[arg-type]
    hostile = "<script>alert(1)</script>"
    path = write_evaluation(tmp_path / "evaluate", {hostile: RANKS["base"], "tuned": RANKS["tuned"]})
    shown = drag_ray.compare(path, path, a_policies=[hostile], b_policies=["tuned"])._repr_html_()
    assert "<script" not in shown
    assert "A:&lt;script&gt;alert(1)&lt;/script&gt;" in shown


def test_an_agent_rolls_out_in_a_loop_of_its_own_as_it_is_told_and_answers_other_requests(tmp_path: Path) -> None:
    def write(request: Request) -> str:
        told = str(request.messages[0]["content"])
        if told == "Write other instructions.":
            return "<think>Which?</think>Write of rotors."
        return f"<search>{'rotor' if told.startswith('Write of rotors.') else 'spar'}</search>"

    finish_index(tmp_path, PAGES, QUESTIONS)
    options = WorkerOptions(
        run_dir=tmp_path / "_asked",
        index_dir=tmp_path / "index" / "search_index",
        agent=AgentConfig(query_mode="rewrite", max_iterations=1),
        engine=EngineConfig(),
        policies={"": Policy("scripted")},
        concurrent_rollouts=1,
        flush_s=0,
        build_engine=lambda *_: ScriptedEngine(write),
    )

    async def ask_in_a_notebook() -> Transcript:  # whose loop is running
        with Agent(options) as agent:
            return agent.roll_out("What bends?", evidence=[("a.pdf", 2)])

    transcript = asyncio.run(ask_in_a_notebook())
    [turn] = transcript.trajectory.turns
    assert (turn.query, turn.ranking.evidence_rank, transcript.outcome) == ("spar", 1, "found")
    with Agent(options) as agent, pytest.raises(ConfigError, match="preset 'warm': expected one of greedy"):
        agent.roll_out("What bends?", preset="warm")  # type: ignore[arg-type]
    with Agent(options) as agent:
        told_otherwise = agent.roll_out("What bends?", instructions="Write of rotors.")
        assert told_otherwise.trajectory.turns[0].query == "rotor"
        assert agent.write("Write other instructions.") == "Write of rotors."


@pytest.mark.seconds
def test_a_folder_without_a_reward_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=r"no reward model\. Run: python jobs/finetune\.py --finetune\.method reward"):
        drag_ray.load_reward_model(tmp_path / "nothing")


def test_what_a_format_or_a_store_is_not_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    run, source = drag_ray.open_run(tmp_path / "run"), tmp_path / "records"
    source.mkdir()
    with pytest.raises(ConfigError, match="format 'drga': expected one of drag, atif"):
        run.import_trajectories(source, format="drga")
    with pytest.raises(ConfigError, match="'v_retrver': holds questions with candidates and no trajectories: import_questions"):
        run.import_trajectories(source, format="v_retrver")
    with pytest.raises(ConfigError, match="'drag': holds trajectories and no questions with candidates: import_trajectories"):
        run.import_questions(source, format="drag")
    with pytest.raises(ConfigError, match=r"unknown key 'agent'\. Allowed here: name, scope"):
        run.import_trajectories(source, format="atif", agent={"top_k": 5})
    with pytest.raises(ConfigError, match=r"the run has no storage\.uri"):
        run.push()
    with pytest.raises(ConfigError, match="takes region") as error:
        run.pull("s3://key:secret@bucket/x")
    assert "secret" not in str(error.value)
    assert not run.folder.exists()


def test_everything_that_is_offered_has_an_example() -> None:
    assert {item.__qualname__ for item in (drag_ray.compare, drag_ray.Run.push, Agent.roll_out)} <= {
        item.__qualname__ for item in list_documented()
    }
    lacking = [item.__qualname__ for item in list_documented() if ">>> " not in (item.__doc__ or "")]
    assert lacking == []


@pytest.mark.seconds
def test_the_examples_do_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run_examples(list_reading()) == {}


def test_its_cells_were_executed_in_order_without_an_error_or_a_path_of_the_machine() -> None:
    cells = read_cells("code")
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "execute_result"}
    assert not [output for output in outputs if output.get("name") == "stderr"]
    shown = str([cell["outputs"] for cell in read_cells("code")])
    assert re.findall(r"/(?:tmp|root|home|work|usr|opt|var)/", shown) == []


@pytest.mark.seconds
def test_its_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    shown = run_cells(with_engine=False)
    assert {type(item) for item in shown} == {type(None), int, pl.DataFrame, Transcript, drag_ray.Report}

"""Context of the numbers of a report."""

from pathlib import Path

from factories import build_question
from small_index import write_index

from drag_ray.config import build
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.evaluate.report.context import build_context
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Page


def test_what_the_machines_of_earlier_stages_cost_is_said_of_those_that_had_prices(tmp_path: Path) -> None:
    with StageFolder(tmp_path / "index", Identity("index", {}, {})) as folder:
        write_index(folder.path, [Page("a.pdf", 1, 1, "rotor")], [build_question()])
        index = folder.finish({}, spent={"gpu_hours": 0.0, "cpu_hours": 4.0, "cost": 2.5})
    read, came_from = {"index": "index"}, {"index": index.outcome_fingerprint}
    with StageFolder(tmp_path / "finetune", Identity("finetune", {}, came_from, reads=read)) as folder:
        folder.finish({})
    inputs = Inputs({"index": tmp_path / "index", "finetune": tmp_path / "finetune"}, tmp_path)
    context = build_context(RunConfig(run_dir=tmp_path).take(EvaluateSections), inputs, 1, {}, {}, "")
    assert context.machine_costs == {"index": 2.5}
    assert set(context.stage_times) == {"index", "finetune"}


def test_a_report_says_of_questions_that_a_model_wrote_that_it_did(tmp_path: Path) -> None:
    for given, said in ((0, "1 test questions that a model has written on 1 pages"), (3, "1 test questions on 1 pages")):
        run_dir = tmp_path / str(given)
        with StageFolder(run_dir / "index", Identity("index", {}, {})) as folder:
            write_index(folder.path, [Page("a.pdf", 1, 1, "rotor")], [])
            folder.finish({"questions": given})
        with StageFolder(run_dir / "questions", Identity("questions", {}, {}, reads={"index": "index"})) as folder:
            folder.finish({})
        folders = {name: run_dir / name for name in ("index", "questions")}
        inputs = Inputs({**folders, "finetune": None}, run_dir)
        context = build_context(RunConfig(run_dir=run_dir).take(EvaluateSections), inputs, 1, {}, {}, "")
        assert context.summary.startswith(said)
        kept = build(RunConfig, {"run_dir": run_dir, "evaluate": {"verdicts": "verdicts.jsonl"}}).take(EvaluateSections)
        seen = "a model has written and a person has kept" if given == 0 else "a person has kept"
        assert f"1 test questions that {seen} on 1 pages" in build_context(kept, inputs, 1, {}, {}, "").summary

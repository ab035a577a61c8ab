"""Errors and options survive pickling, schemas match records, and Ray stays where it belongs."""

import ast
import dataclasses
import inspect
import pickle
from pathlib import Path

import pytest

from drag_ray import errors, schemas, types
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.rollout.options import WorkerOptions

PACKAGE = Path(errors.__file__).parent
ERRORS = [item for _, item in inspect.getmembers(errors, inspect.isclass) if issubclass(item, errors.DragRayError)]


@pytest.mark.parametrize("error_type", ERRORS, ids=lambda item: item.__name__)
def test_errors_survive_pickling_and_are_drawn_in_the_tree(error_type: type[errors.DragRayError]) -> None:
    restored = pickle.loads(pickle.dumps(error_type("what and where")))
    assert (type(restored), str(restored)) == (error_type, "what and where")
    assert error_type.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("schema", "record"),
    [(schemas.PAGES, types.Page), (schemas.QUESTIONS, types.Question), (schemas.TRAJECTORIES, types.Trajectory)],
    ids=["pages", "questions", "trajectories"],
)
def test_a_table_has_the_columns_of_its_record(schema, record) -> None:
    assert schema.names == [field.name for field in dataclasses.fields(record)]


def test_configurations_survive_pickling() -> None:
    config = RunConfig()
    assert pickle.loads(pickle.dumps(config)) == config
    assert dataclasses.is_dataclass(WorkerOptions)


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_only_stages_the_cluster_and_metrics_know_ray() -> None:
    knowing = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "ray" in imported_modules(path)}
    stages = (f"{name}/stage.py" for name in ("index", "finetune", "prompt", "serve"))
    rollout = (f"rollout/{name}.py" for name in ("runner", "engine_pool", "tool_hosts"))
    serve = (f"serve/{name}.py" for name in ("replica", "running_replicas"))
    others = ("cluster.py", "finetune/training_process.py", "metrics.py", "nodes.py", "tasks.py")
    assert knowing <= {*others, *rollout, *serve, *stages}


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in PACKAGE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent

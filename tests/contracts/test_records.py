"""Errors and options survive pickling, schemas match records, and Ray stays where it belongs."""

import ast
import dataclasses
import inspect
import pickle
from pathlib import Path

import pytest

from drag_ray import errors, schemas
from drag_ray.agent.tasks import TASKS
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.rollout.options import WorkerOptions
from drag_ray.storage.artifacts import compute_fingerprint

PACKAGE = Path(errors.__file__).parent
BESIDE = [PACKAGE.parent / name for name in ("benchmarks", "jobs", "runtime_env", "tests")]
TREES = {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
ERRORS = [item for _, item in inspect.getmembers(errors, inspect.isclass) if issubclass(item, errors.DragRayError)]


@pytest.mark.parametrize("error_type", ERRORS, ids=lambda item: item.__name__)
def test_errors_survive_pickling_and_are_drawn_in_the_tree(error_type: type[errors.DragRayError]) -> None:
    restored = pickle.loads(pickle.dumps(error_type("what and where")))
    assert (type(restored), str(restored)) == (error_type, "what and where")
    assert error_type.__name__ in (errors.__doc__ or "")


def test_tables_with_other_columns_are_of_another_schema_version() -> None:
    """They follow from the records: a change there raises the version, and the tables of the version before are still read."""
    columns = [str(schema.remove_metadata()) for schema in (schemas.PAGES, schemas.QUESTIONS, schemas.TRAJECTORIES)]
    assert {schemas.SCHEMA_VERSION: compute_fingerprint(columns)} == {"11": "d0af1978256484dd"}


def test_configurations_survive_pickling() -> None:
    config = RunConfig()
    assert pickle.loads(pickle.dumps(config)) == config
    assert dataclasses.is_dataclass(WorkerOptions)


def imported_modules(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_only_stages_the_cluster_and_metrics_know_ray() -> None:
    knowing = {name for name, tree in TREES.items() if "ray" in imported_modules(tree)}
    stages = (f"{name}/stage.py" for name in ("index", "finetune", "serve"))
    rollout = (f"rollout/{name}.py" for name in ("runner", "engine_pool", "tool_hosts", "worker_actors"))
    cluster = (f"cluster/{name}.py" for name in ("connection", "metrics", "nodes", "tasks"))
    others = ("finetune/training_process.py", "serve/replica.py", "serve/ingress/proxy.py")
    assert knowing <= {*cluster, *others, *rollout, *stages}


def test_every_module_says_what_it_is() -> None:
    silent = [name for name, tree in TREES.items() if not ast.get_docstring(tree)]
    assert not silent


def test_a_docstring_says_what_the_thing_is() -> None:
    """It begins with a noun phrase or a verb: a reader who looks a name up has no question."""
    questions = ("What", "How", "Which", "Whether", "Where", "When", "Who", "Why", "If")
    asking = [
        f"{path}: {text.splitlines()[0]}"
        for folder in (PACKAGE, *BESIDE)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and text.split()[0] in questions
    ]
    assert not asking


def test_what_a_task_is_stands_with_the_tasks_alone() -> None:
    """Elsewhere its kind is asked for (`agent.tasks`), so that a new task is one module and one line."""
    compared = [
        f"{name}: {ast.unparse(node)}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(part, ast.Constant) and part.value in TASKS for part in ast.walk(node))
        and "task" in ast.unparse(node)
    ]
    assert not compared

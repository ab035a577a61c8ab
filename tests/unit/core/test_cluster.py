"""Ray's cluster: its token, its nodes and what they see, and usage reports, which are off."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from process_environments import REPORTS_OFF

from drag_ray.cluster import nodes
from drag_ray.cluster.connection import build_worker_environment, ensure_token, locate_token
from drag_ray.cluster.nodes import NodeResources, find_seeing
from drag_ray.errors import ConfigError
from drag_ray.usage_reports import choose_switches


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has never used Ray."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_first_use_makes_a_token_that_its_owner_alone_can_read_and_the_second_keeps_it() -> None:
    ensure_token(may_create=True)
    token = locate_token().read_text()
    assert len(token) == 64
    assert stat.S_IMODE(locate_token().stat().st_mode) == 0o600
    assert stat.S_IMODE(locate_token().parent.stat().st_mode) == 0o700
    ensure_token(may_create=True)
    assert locate_token().read_text() == token
    assert list(locate_token().parent.iterdir()) == [locate_token()]


def test_a_token_that_ray_wrote_for_everyone_to_read_is_closed_to_them(home: Path) -> None:
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text("a" * 64)
    (home / ".ray" / "auth_token").chmod(0o644)
    ensure_token(may_create=False)
    assert stat.S_IMODE(locate_token().stat().st_mode) == 0o600


def test_processes_that_come_first_together_find_the_same_token() -> None:
    def read(_: int) -> str:
        ensure_token(may_create=True)
        return locate_token().read_text()

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(read, range(64)))) == 1


def test_a_cluster_that_runs_already_is_shown_no_token_of_our_own_making() -> None:
    with pytest.raises(ConfigError, match=r"auth_token: no such file.*Copy the file from the machine that started the cluster"):
        ensure_token(may_create=False)
    assert not locate_token().exists()


def test_a_token_in_a_variable_or_a_file_of_the_users_choice_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = home / "mounted"
    chosen.write_text("a" * 64)
    chosen.chmod(0o444)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(chosen))
    ensure_token(may_create=True)
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o444
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "missing"))
    with pytest.raises(ConfigError, match="missing: no such file"):
        ensure_token(may_create=True)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
    ensure_token(may_create=False)
    assert not (home / ".ray").exists()


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_a_file_that_holds_no_token_is_named(home: Path, content: bytes) -> None:
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_bytes(content)
    with pytest.raises(ConfigError, match=r"\.ray/auth_token: (holds no token|Ray's token cannot be read)"):
        ensure_token(may_create=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Three nodes, the driver on `head`; `near` sees its folders and `far` does not. Which were asked, time by time."""
    rounds: list[set[str]] = []

    def ask(others: Collection[str], mark: Path) -> list[str]:
        assert mark.is_file()
        rounds.append(set(others))
        return [node for node in others if node == "near"]

    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "head"))
    monkeypatch.setattr(nodes, "_ask_nodes", ask)
    start(monkeypatch, head={"CPU": 2.0}, near={"CPU": 8.0, "GPU": 2.0}, far={"CPU": 16.0, "GPU": 8.0})
    return rounds


def start(monkeypatch: pytest.MonkeyPatch, **resources: dict[str, float]) -> None:
    """Make these the nodes of the cluster."""
    alive = [{"NodeID": name, "Alive": True, "Resources": has} for name, has in resources.items()]
    monkeypatch.setattr(ray, "nodes", lambda: [*alive, {"NodeID": "gone", "Alive": False, "Resources": {"CPU": 4.0}}])


def test_nodes_that_do_not_see_a_folder_are_neither_chosen_nor_counted_and_asked_once(
    asked: list[set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeing = find_seeing(tmp_path)
    assert seeing.selector == {"ray.io/node-id": "in(head,near)"}
    assert (seeing.num_cpus, seeing.num_gpus) == (10, 2)
    assert find_seeing(tmp_path, use_gpu=True) == ((NodeResources(8, 2),), {"ray.io/node-id": "in(near)"}, ("near",))
    assert list(tmp_path.iterdir()) == []
    for _ in range(3):
        find_seeing(tmp_path)
    assert asked == [{"near", "far"}]
    start(monkeypatch, head={"CPU": 2.0}, near={"CPU": 8.0})
    assert find_seeing(tmp_path).selector is None
    assert asked == [{"near", "far"}, {"near"}]


def test_a_cluster_that_has_yet_to_grow_is_waited_for_and_a_folder_that_no_node_with_room_sees_is_refused(
    asked: list[set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(monkeypatch, head={})
    assert find_seeing(tmp_path) == ((), None, ())
    assert asked == []
    start(monkeypatch, head={}, far={"CPU": 16.0, "GPU": 8.0})
    for use_gpu, unit in ((False, "CPU"), (True, "GPU")):
        with pytest.raises(ConfigError, match=rf"no node that has a {unit} sees {tmp_path}.*--run-dir"):
            find_seeing(tmp_path, use_gpu=use_gpu)


ASK_LIBRARIES = """
import json
{before}
import drag_ray
from huggingface_hub import constants
from ray._common.usage import usage_lib
from vllm.usage.usage_lib import is_usage_stats_enabled

print(json.dumps([usage_lib.usage_stats_enabled(), is_usage_stats_enabled(), not constants.HF_HUB_DISABLE_TELEMETRY]))
"""


@pytest.mark.parametrize(
    ("variables", "switches"),
    [
        ({}, REPORTS_OFF),
        (REPORTS_OFF, REPORTS_OFF),
        (
            {"VLLM_NO_USAGE_STATS": "0"},
            {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "0", "HF_HUB_DISABLE_TELEMETRY": "1"},
        ),
        ({"DO_NOT_TRACK": "0"}, REPORTS_OFF | {"DO_NOT_TRACK": "0"}),
        ({"RAY_USAGE_STATS_ENABLED": "1", "DO_NOT_TRACK": "1"}, REPORTS_OFF | {"RAY_USAGE_STATS_ENABLED": "1"}),
    ],
)
def test_switches_are_off_and_those_of_the_environment_stay(variables: dict[str, str], switches: dict[str, str]) -> None:
    assert choose_switches(variables) == switches


def test_the_processes_of_ray_are_told_what_the_driver_has() -> None:
    assert build_worker_environment({}).items() >= REPORTS_OFF.items()
    told = build_worker_environment({"VLLM_NO_USAGE_STATS": "0", "TOKENIZERS_PARALLELISM": "true"})
    assert told["VLLM_NO_USAGE_STATS"] == "0"
    assert "DO_NOT_TRACK" not in told  # would turn vLLM's off
    assert told["TOKENIZERS_PARALLELISM"] == "true"


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("variables", "before", "reporting"),
    [
        ({}, "import huggingface_hub.constants", [False, False, False]),
        ({"RAY_USAGE_STATS_ENABLED": "1", "VLLM_NO_USAGE_STATS": "0", "HF_HUB_DISABLE_TELEMETRY": "0"}, "", [True, True, True]),
    ],
)
def test_the_libraries_report_only_what_a_user_turned_on(variables: dict[str, str], before: str, reporting: list[bool]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in REPORTS_OFF} | variables
    command = [sys.executable, "-c", ASK_LIBRARIES.format(before=before)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1]) == reporting

"""Usage reports: off from the import of the package on, in this process and in those of Ray, unless the user turns one on."""

import json
import os
import subprocess
import sys

import pytest
from process_environments import REPORTS_OFF

from drag_ray.cluster.connection import build_worker_environment
from drag_ray.usage_reports import choose_switches

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
        (
            {"RAY_USAGE_STATS_ENABLED": "1", "DO_NOT_TRACK": "1"},
            REPORTS_OFF | {"RAY_USAGE_STATS_ENABLED": "1"},
        ),
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
        ({}, "", [False, False, False]),
        ({}, "import huggingface_hub.constants", [False, False, False]),
        ({"RAY_USAGE_STATS_ENABLED": "1", "VLLM_NO_USAGE_STATS": "0", "HF_HUB_DISABLE_TELEMETRY": "0"}, "", [True, True, True]),
    ],
)
def test_the_libraries_report_only_what_a_user_turned_on(variables: dict[str, str], before: str, reporting: list[bool]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in REPORTS_OFF} | variables
    command = [sys.executable, "-c", ASK_LIBRARIES.format(before=before)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[-1]) == reporting

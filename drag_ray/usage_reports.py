"""Usage reports of the libraries underneath: off in every process, unless its environment turns one on.

TRL and transformers send theirs through Hugging Face's hub library. Ray's is sent by the head of a cluster: that of a local Ray
has the environment of the driver, that of any other cluster the one it was started with.
"""

import os
import sys
from collections.abc import Mapping

OFF = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""The switch of each library, turned off."""
_ALL_OFF = {"DO_NOT_TRACK": "1"}
"""One switch for many libraries: of those named above too, so that it would turn off again what a user turned on."""


def choose_switches(environment: Mapping[str, str]) -> dict[str, str]:
    """All switches as an environment has them; off where it says nothing."""
    switches = {name: environment.get(name, value) for name, value in OFF.items()}
    if switches == OFF or _ALL_OFF.keys() <= environment.keys():
        switches |= {name: environment.get(name, value) for name, value in _ALL_OFF.items()}
    return switches


def turn_off_reports() -> None:
    """Set the switches in the environment of this process, which those that it starts inherit."""
    os.environ.update(choose_switches(os.environ))
    hub = sys.modules.get("huggingface_hub.constants")  # has read its variable when it was imported
    if hub and os.environ["HF_HUB_DISABLE_TELEMETRY"] == OFF["HF_HUB_DISABLE_TELEMETRY"]:
        vars(hub)["HF_HUB_DISABLE_TELEMETRY"] = True

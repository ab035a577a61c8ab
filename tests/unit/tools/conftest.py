"""A collection of a few pages."""

import pytest
from tool_cases import Pages

from drag_ray.tools.workspace import Workspace


@pytest.fixture
def workspace() -> Workspace:
    return Workspace(
        Pages(
            "Preflight.\nCheck the rotor.",
            "Limits.\nROTOR  speed 340 rpm\nfuel 5 % (reserve)",
            "x" * 5000 + " rotor " + "y" * 500,
            "The end.",
        )
    )

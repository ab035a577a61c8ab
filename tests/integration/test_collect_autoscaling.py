"""A collection asks for engines, gets nodes by Ray's autoscaler, uses them as they come, and gives them back."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_nodes_come_for_engines_are_used_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from trace_autoscaling import trace

    results = trace(num_engines=3, num_rollouts=240, folder=tmp_path)
    assert (results["kept"], results["lost"], results["kept_twice"], results["failed"]) == (240, 0, 0, 0)
    nodes, engines = ([moment[name] for moment in results["moments"]] for name in ("nodes", "engines"))
    assert (nodes[0], engines[0]) == (0, 0)
    assert (max(nodes), engines[-1]) == (3, 3)
    assert nodes[-1] == 0
    assert results["collected_after_s"] < results["moments"][-1]["at_s"]

"""The process stage: trajectories -> scored searches, their summary and the statistics."""

from typing import Any

from drag_ray.artifacts import StageFolder, write_json, write_parquet
from drag_ray.process.searches import explode_searches, summarise_trajectories
from drag_ray.process.statistics import compute_statistics, format_statistics
from drag_ray.process.trajectories import load_trajectories


def run(config: Any, folder: StageFolder) -> dict[str, Any]:
    """Score the searches of the training trajectories and print what they came to.

    Reads `trajectories/*.parquet` of the collect stage; writes `searches.parquet` (a row a search),
    `trajectories.parquet` (a row a trajectory) and `statistics.json`.

    Returns:
        The counts of the statistics, without the distributions.

    Raises:
        DataError: the trajectories cannot be read, or none of them can be trained on.
    """
    loaded = load_trajectories(config.stage_dir("collect") / "trajectories", config.process.top_k)
    searches = explode_searches(loaded.frame)
    trajectories = summarise_trajectories(loaded.frame, searches)
    statistics = compute_statistics(loaded, searches, trajectories)
    write_parquet(folder.path / "searches.parquet", searches.to_arrow())
    write_parquet(folder.path / "trajectories.parquet", trajectories.to_arrow())
    write_json(folder.path / "statistics.json", statistics)
    print(format_statistics(statistics))
    return {name: value for name, value in statistics.items() if not isinstance(value, dict)}

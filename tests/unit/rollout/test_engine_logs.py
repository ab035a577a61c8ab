"""Reasons that the logs of engines give for their end."""

import os
from pathlib import Path

import pytest

from drag_ray.errors import ArtifactError
from drag_ray.rollout.folder import find_last_error, list_changed_logs, log_to_file, read_log_changes

REPORT = """INFO 11-22 01:54:30 [core.py:99] Initializing a V1 LLM engine
(EngineCore pid=9) ERROR 11-22 01:54:50 [core.py:864] Traceback (most recent call last):
(EngineCore pid=9) ERROR 11-22 01:54:50 [core.py:864] ValueError: Free memory on device cuda:0 (1.5/139.8 GiB) is less
Traceback (most recent call last):
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


def write_log(run_dir: Path, number: int, text: str) -> None:
    path = run_dir / "logs" / f"engine-{number}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (number, number))


def test_the_root_cause_is_found_behind_the_error_that_refers_to_it(tmp_path: Path) -> None:
    write_log(tmp_path, 1, REPORT)
    assert find_last_error(list_changed_logs(tmp_path, {})) == "ValueError: Free memory on device cuda:0 (1.5/139.8 GiB) is less"


def test_the_newest_log_that_names_an_error_counts(tmp_path: Path) -> None:
    write_log(tmp_path, 20, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    write_log(tmp_path, 3, REPORT)
    write_log(tmp_path, 21, "killed before it came to anything")
    assert (
        find_last_error(list_changed_logs(tmp_path, {})) == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    )


def test_a_log_without_an_error_or_no_log_says_nothing(tmp_path: Path) -> None:
    assert find_last_error(list_changed_logs(tmp_path, {})) == ""
    write_log(tmp_path, 1, "all is well; no Error here")
    assert find_last_error(list_changed_logs(tmp_path, {})) == ""


def test_logs_of_an_earlier_start_do_not_count_unless_they_grew(tmp_path: Path) -> None:
    for number in range(1, 5):
        write_log(tmp_path, number, "of an earlier start")
    earlier = read_log_changes(tmp_path)
    assert list_changed_logs(tmp_path, earlier) == []
    write_log(tmp_path, 30, REPORT)
    write_log(tmp_path, 20, REPORT)
    os.utime(tmp_path / "logs" / "engine-2.log", (25, 25))
    assert [path.stem for path in list_changed_logs(tmp_path, earlier)] == ["engine-20", "engine-2", "engine-30"]


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    with pytest.raises(ArtifactError, match=r"logs/engine-\d+\.log: cannot be written"):
        log_to_file(tmp_path)

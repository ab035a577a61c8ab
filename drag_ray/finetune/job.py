"""The job of a training process."""

from dataclasses import dataclass
from pathlib import Path

from drag_ray.finetune.config import FinetuneConfig


@dataclass(frozen=True)
class TrainJob:
    """Everything that a training process needs to know.

    Paths are absolute; `image_dirs` are the stores of images, none where the run has no index. `start_dir` is the adapter whose
    weights are trained on, None for a new one. `num_threads` counts on a CPU only. `compares_prompts` is that of `RowTokenizer`.
    """

    config: FinetuneConfig
    model: str
    train_path: Path
    validation_path: Path
    image_dirs: tuple[Path, ...]
    use_gpu: bool
    num_workers: int
    num_threads: int
    start_dir: Path | None = None
    compares_prompts: bool = True

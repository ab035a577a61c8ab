"""What a training process is given."""

from dataclasses import dataclass

from drag_ray.finetune.config import FinetuneConfig


@dataclass(frozen=True)
class TrainJob:
    """What a training process needs to know. Paths are absolute; `num_threads` counts on a CPU only."""

    config: FinetuneConfig
    model: str
    train_path: str
    validation_path: str
    images_dir: str
    use_gpu: bool
    num_workers: int
    num_threads: int

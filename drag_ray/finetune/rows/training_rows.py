"""The rows of a training, tokenized once for all its processes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from drag_ray.engine.conversation import Row
from drag_ray.engine.models.pretrained import load_tokenizer
from drag_ray.errors import DataError
from drag_ray.finetune.config import TrainJob
from drag_ray.finetune.methods.encoder import EncoderMethod
from drag_ray.finetune.methods.method import AdapterMethod, Method
from drag_ray.finetune.rows.images import open_training_images
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer, TokenizedRows, read_rows


@dataclass(frozen=True)
class TrainingRows:
    """Rows to learn from, and those for the validation loss, perhaps none.

    `counts`: how many there are and how many are left out, what is learned of them, and the images that they show. It takes a
    look at every token, which each process would take again.
    """

    train: TokenizedRows
    validation: TokenizedRows
    counts: dict[str, int]


def tokenize_training_rows(job: TrainJob) -> TrainingRows:
    """Read and tokenize the rows of a training. Raises DataError where training rows are missing, unreadable or all too long, or
    nothing can be learned from them, and TrainError where the model's chat template cannot be trained with, or it takes no images
    and the rows show some."""
    method = job.config.chosen_method
    read = _open_reader(job)
    drawn = read_rows(job.train_path, job.config.limit, job.config.seed)
    train = _read_file(job.train_path, drawn, read)
    validation = _read_file(job.validation_path, read_rows(job.validation_path), read)
    _check_any_left(train, job.train_path, method)
    return TrainingRows(train, validation, _count(train, validation, method))


def _open_reader(job: TrainJob) -> Callable[[Iterable[Row]], TokenizedRows]:
    """The function that makes tokens of rows for an adapter, or texts for an encoder."""
    method = job.config.chosen_method
    if isinstance(method, EncoderMethod):
        return method.read
    assert isinstance(method, AdapterMethod)
    images = open_training_images(job.model, job.image_dirs)
    tokenizer = RowTokenizer(load_tokenizer(job.model), job.config.max_length, images, job.compares_prompts)
    return partial(method.tokenize, tokenizer=tokenizer)


def _read_file(path: Path, rows: Iterator[Row], read: Callable[[Iterable[Row]], TokenizedRows]) -> TokenizedRows:
    """Its rows, which are read meanwhile, so that errors in them name it."""
    try:
        return read(rows)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _check_any_left(rows: TokenizedRows, path: Path, method: Method) -> None:
    if rows.rows:
        return
    if rows.num_without_advantage:
        raise DataError(f"{path}: in all {rows.num_without_advantage} rows {method.why_nothing_is_learned}")
    raise DataError(f"{path}: no training rows. Run: python jobs/format.py")


def _count(train: TokenizedRows, validation: TokenizedRows, method: Method) -> dict[str, int]:
    left_out = {"rows_without_advantage": train.num_without_advantage, "rows_off_policy": train.num_off_policy}
    return {
        "rows": len(train.rows),
        "rows_too_long": train.num_too_long,
        "validation_rows": len(validation.rows),
        "validation_rows_too_long": validation.num_too_long,
        **method.count(train),
        **{reason: count for reason, count in left_out.items() if count},
    }

"""Agreement of training methods, row formats and options."""

from typing import get_type_hints

import pytest

from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.methods.method import Method
from drag_ray.finetune.methods.registry import METHOD_NAMES
from drag_ray.format.row_format import load_format
from drag_ray.format.rows import FORMATS

METHODS = {name: FinetuneConfig(method=name).chosen_method for name in METHOD_NAMES}
by_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@by_method
def test_a_method_reads_columns_that_the_format_of_its_rows_writes(method: Method) -> None:
    assert method.row_format in method.row_types
    for name, row_type in method.row_types.items():
        written = get_type_hints(load_format(name).row)
        read = {column: get_type_hints(row_type)[column] for column in getattr(row_type, "__required_keys__")}  # noqa: B009
        assert read
        assert read == {column: written.get(column) for column in read}


def test_rows_of_every_format_are_learned_from() -> None:
    assert {name for method in METHODS.values() for name in method.row_types} == set(FORMATS)


@by_method
def test_every_option_of_a_method_has_a_text(method: Method) -> None:
    assert not [name for name, field in type(method).model_fields.items() if not field.description]

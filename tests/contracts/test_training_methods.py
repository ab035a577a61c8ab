"""What holds between training methods, row formats and options."""

import pytest

from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.methods.registry import METHOD_NAMES
from drag_ray.format.config import FORMATS


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_method_learns_from_rows_that_are_written(name: str) -> None:
    method = FinetuneConfig(method=name).chosen_method
    assert method.row_format in method.row_formats
    assert set(method.row_formats) <= set(FORMATS)


def test_every_kind_of_rows_is_learned_from() -> None:
    assert {kind for name in METHOD_NAMES for kind in FinetuneConfig(method=name).chosen_method.row_formats} == set(FORMATS)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_every_option_of_a_method_has_a_text(name: str) -> None:
    options = type(FinetuneConfig(method=name).chosen_method).model_fields
    assert not [option for option, field in options.items() if not field.description]

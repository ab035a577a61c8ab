"""The request for other instructions, in GEPA's words."""

from collections.abc import Mapping, Sequence
from typing import Any

from gepa.strategies.instruction_proposal import InstructionProposalSignature as Signature

_APART = (
    "\n\nThe assistant is told apart from these instructions how a reply is written, what the language of queries is, and a few "
    "examples. Do not repeat that: write what the task is and how it is done well."
)


def render_request(instructions: str, records: Sequence[Mapping[str, Any]]) -> str:
    """What the model is asked to improve its instructions with.

    Args:
        instructions: those that the records came about with.
        records: of a reflective dataset (see `Outcome.to_record`).
    """
    template = Signature.default_prompt_template + _APART
    request = Signature.prompt_renderer(
        {"current_instruction_doc": instructions, "dataset_with_feedback": records, "prompt_template": template}
    )
    assert isinstance(request, str)  # a list of messages holds images, and records have none
    return request


def read_proposal(reply: str) -> str:
    """The instructions in a reply: what stands within ``` marks, or all of it."""
    return Signature.output_extractor(reply.strip())["new_instruction"].strip()

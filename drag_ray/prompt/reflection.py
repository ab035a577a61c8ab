"""The request for other instructions, in GEPA's words."""

from collections.abc import Mapping, Sequence
from typing import Any

from gepa.strategies.instruction_proposal import InstructionProposalSignature as Signature

_TOLD_APART = (
    "An assistant helps to find pages of a collection of documents. How its replies are written, the language of queries and a "
    "few examples are told to it apart from its instructions, which say what the task is and how it is done well.\n\n"
)


def render_request(instructions: str, records: Sequence[Mapping[str, Any]]) -> str:
    """What the model is asked to improve its instructions with.

    Args:
        instructions: those that the records came about with.
        records: of a reflective dataset (see `Outcome.to_record`).
    """
    template = _TOLD_APART + Signature.default_prompt_template
    request = Signature.prompt_renderer(
        {"current_instruction_doc": instructions, "dataset_with_feedback": records, "prompt_template": template}
    )
    assert isinstance(request, str)  # a list of messages holds images, and records have none
    return request


def read_proposal(reply: str) -> str:
    """The instructions in a reply: what stands within ``` marks, or all of it."""
    return Signature.output_extractor(reply.strip())["new_instruction"].strip()

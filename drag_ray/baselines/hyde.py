"""HyDE: Gao, Ma, Lin and Callan, Precise Zero-Shot Dense Retrieval without Relevance Labels (2022). A passage is the query.

The paper averages the embeddings of several passages; a keyword index has no such mean, so here it is one passage.
"""

from collections import Counter
from dataclasses import dataclass

from drag_ray.baselines.passages import Analyze, PassageBaseline
from drag_ray.engine.generate import Message

_REQUEST = "Please write a passage to answer the question.\nQuestion: {question}\nPassage:"


@dataclass(frozen=True)
class Hyde(PassageBaseline):
    """Searches for a passage that the engine writes."""

    name = "hyde"
    summary = "a passage that the base model writes for the question, having seen no page"

    def build_messages(self, question: str) -> tuple[Message, ...]:
        """The paper's request for a web search."""
        return ({"role": "user", "content": _REQUEST.format(question=question)},)

    def weigh_terms(self, question: str, passage: str, analyze: Analyze) -> dict[str, float]:
        """The terms of the passage with their counts."""
        return dict(Counter(analyze(passage)))

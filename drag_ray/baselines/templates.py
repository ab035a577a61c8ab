"""Words for each kind of question, tried out on the training questions: what a careful person writes as query templates.

`neighbours` takes the words that are frequent in the pages of similar questions; here they are searched for, and those kept,
with their weights, that lift the evidence of the questions of a kind on average. A word that helps one question by chance does
not help the others. No model is needed, and what comes out is short enough for a policy to learn it.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from drag_ray.baselines.baseline import BaselineContext, Sources, TermBaseline, WriteAdditions, build_query_reply
from drag_ray.baselines.question_words import QuestionWords, choose_kind
from drag_ray.baselines.template_config import TemplateConfig
from drag_ray.baselines.weights import expand_terms, vary_words, write_weights, write_words
from drag_ray.engine.generate import GenerateFn, Request


@dataclass(frozen=True)
class Templates(TermBaseline):
    """Searches for the question and the words of its kind."""

    name = "templates"
    summary = "the question, expanded by the words that gain most, on average, for training questions put alike; no model writes"
    section = ("templates", TemplateConfig)
    proposes = True
    draws = True

    options: TemplateConfig = field(default_factory=TemplateConfig)
    words: QuestionWords = field(default_factory=lambda: QuestionWords([]))
    templates: Mapping[frozenset[str], Mapping[str, int]] = field(default_factory=dict)
    """the words of each kind with their weights; of the kind with most questions first"""

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With words that were tried out on the run's training questions, which takes a minute or two for thousands of them, and
        is done once in a pipeline."""
        from drag_ray.baselines.template_search import find_templates_once
        from drag_ray.search.index import read_fingerprint

        options = sources.options.take(TemplateConfig)
        questions = tuple(sources.draw_questions(options.max_questions))
        index_dir = sources.index_dir / "search_index"
        index_fingerprint = read_fingerprint(index_dir)
        return cls(
            options, *find_templates_once(questions, index_dir, index_fingerprint, options.model_dump_json(), sources.seed)
        )

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """Replies that search for the question and the words of its kind."""
        searcher = context.searcher

        def write(question: str) -> str:
            added = searcher.read_additions(write_words(self.find_template(question)))
            return write_weights(expand_terms(searcher.analyze(question), self.options.question_weight, added))

        return build_query_reply(write, context.agent)

    def build_additions(self, context: BaselineContext) -> WriteAdditions:
        """The words of the question's kind, varied (see `vary_words`)."""

        async def write(question: str, request: Request) -> str:
            return write_words(vary_words(self.find_template(question), random.Random(request.seed)))

        return write

    def find_template(self, question: str) -> Mapping[str, int]:
        """The words of a question's kind with their weights; none if it is of no kind, or nothing helps that."""
        kind = choose_kind(self.words.pick(question), list(self.templates))
        return self.templates[kind] if kind else {}

"""What a model wrote becomes a Tantivy query, whatever it wrote.

Model text is data: it is cut into terms by the index's own analyzer and never reaches a query parser,
so no operator, bracket, quote or field name in it can raise, crash the process or reach another field.
"""

from collections.abc import Mapping

from tantivy import Occur, Query, Schema

from drag_ray.search.analyzer import Analyzer
from drag_ray.search.config import Operator

MAX_QUERY_CHARS = 2_000
"""A query is cut here. A page holds few more words than that, and the cost of a query grows with its terms."""


def clean(text: str) -> str:
    """The text without lone surrogates, which the binding refuses."""
    return text if text.isascii() else text.encode("utf-8", "ignore").decode("utf-8")


def build_terms(text: str, analyzer: Analyzer) -> list[str]:
    """The distinct terms of a query in the order of their first use; empty if nothing searchable is in it."""
    return list(dict.fromkeys(analyzer.analyze(clean(text[:MAX_QUERY_CHARS]))))


def build_query(terms: list[str], schema: Schema, operator: Operator) -> Query:
    """Terms of the text field joined by `operator`; no terms match no page."""
    if not terms:
        return Query.empty_query()
    occur = Occur.Should if operator == "or" else Occur.Must
    return Query.boolean_query([(occur, Query.term_query(schema, "text", term, index_option="freq")) for term in terms])


def build_weighted_query(weights: Mapping[str, float], schema: Schema) -> Query:
    """Terms of the text field joined by OR; a page's score is the sum of each term's score times its weight."""
    if not weights:
        return Query.empty_query()
    terms = ((Query.term_query(schema, "text", clean(term), index_option="freq"), weight) for term, weight in weights.items())
    return Query.boolean_query([(Occur.Should, Query.boost_query(term, weight)) for term, weight in terms])

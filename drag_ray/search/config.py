"""Options of the search index."""

from typing import Literal

from drag_ray.config import BaseConfig


class SearchConfig(BaseConfig):
    """How pages are analysed and how the words of a query combine."""

    analyzer: Literal["english", "plain"] = "english"
    """english: lower case, stop words removed, Snowball stems; plain: lower case alone"""
    operator: Literal["or", "and"] = "or"
    """or: a page may match any word and BM25 ranks; and: a page must hold every word"""

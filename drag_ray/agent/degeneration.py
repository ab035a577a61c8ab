"""Signs of degeneration in columns of texts that a policy writes: loops, copies, names of files."""

import polars as pl

# Loops repeat their words: of three words in a row at least half are new in any text that says something.
_MIN_WORDS = 10
_MIN_NEW_TRIGRAMS = 0.5
_FILE_NAME = r"(?i)[\w-]\.(?:pdf|png|jpe?g|tiff?|jsonl|docx?|pptx?|xlsx?|html?)\b"
# Of fewer words a query may be made by chance.
_MIN_QUESTION_WORDS = 3


def find_repetitive(texts: pl.Series) -> pl.Series:
    """True for each text that goes round in circles: fewer than half of its sequences of three words are new.

    That is seq-rep-3 > 0.5 in the words of Welleck et al., Neural Text Generation with Unlikelihood Training (ICLR 2020).
    """
    words = texts.str.extract_all(r"\w+").rename("word")
    is_long = words.list.len() >= _MIN_WORDS
    word, text = pl.col("word"), pl.col("text")
    # All texts in one column: what has to be done for each list by itself is slow.
    trigrams = (
        words.filter(is_long)
        .to_frame()
        .with_row_index("text")
        .explode("word")
        .select(
            "text", trigram=pl.concat_str(word, word.shift(-1), word.shift(-2), separator=" "), is_whole=text == text.shift(-2)
        )
        .filter("is_whole")
    )
    share_of_new = trigrams.group_by("text").agg(pl.col("trigram").n_unique() / pl.len()).sort("text")["trigram"]
    return is_long.scatter(is_long.arg_true(), share_of_new < _MIN_NEW_TRIGRAMS)


def copies_file_name(query: pl.Expr, evidence_files: pl.Expr) -> pl.Expr:
    """True for a query with the name of a document file: names are not searchable, so what it teaches is to copy them."""
    words = query.str.split(" ")
    return query.str.contains(_FILE_NAME) | (words.list.set_intersection(evidence_files).list.len() > 0)


def copies_question(query: pl.Expr, question: pl.Expr) -> pl.Expr:
    """True for a query that holds all words of its question in their order, whatever case, marks or words it adds.

    A policy that passes the question on has learned nothing that the raw question, a baseline, does not do.
    """
    said, asked = _line_up(query), _line_up(question)
    return said.str.contains(asked, literal=True) & (asked.str.count_matches(" ") > _MIN_QUESTION_WORDS)


def to_query_key(query: pl.Expr) -> pl.Expr:
    """A query without differences of spacing: queries are the same if this is."""
    return query.str.replace_all(r"\s+", " ").str.strip_chars()


def join_words(text: pl.Expr) -> pl.Expr:
    """The distinct words of a text in alphabetical order: what is left without case, order, repetition and punctuation."""
    return _cut_words(text).list.unique().list.sort().list.join(" ")


def _line_up(text: pl.Expr) -> pl.Expr:
    """The words of a text, each between two blanks."""
    return pl.concat_str(pl.lit(" "), _cut_words(text).list.join(" "), pl.lit(" "))


def _cut_words(text: pl.Expr) -> pl.Expr:
    return text.str.normalize("NFKC").str.to_lowercase().str.extract_all(r"\w+")

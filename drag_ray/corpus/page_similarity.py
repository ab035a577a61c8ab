"""How alike the texts of pages are: sets of shingles, their Jaccard similarity, and MinHash to find which to compare.

A text counts as the set of its shingles, all runs of three words in it (Broder, "On the resemblance and containment of
documents", 1997), whatever their case, punctuation and spacing; the shingles of the manuals' entries (`manual_groups`) are
as long. Of two texts that differ in one word in their middle, three-word shingles show the likeness from 29 words on. Runs
of five, as in the deduplication of training text (Lee et al., "Deduplicating training data makes language models better",
2022, from where the threshold of 0.8 is), show it from 49 on, and pages can be shorter. Each
Chinese, Japanese or Korean character counts as a word.

A text of fewer than `MIN_WORDS` words has no shingles, and is taken to be like no other. It is a blank page, a heading, a page
that shows something which no text layer holds; many pages have the same few words, and those do not say that the pages
are the same.

Pairs to compare come from MinHash signatures in locality-sensitive hashing (Leskovec, Rajaraman and Ullman, "Mining of Massive
Datasets", 3.4). They only propose: what is returned was decided by the similarity itself.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from drag_ray.search.analyzer import CJK
from drag_ray.search.normal_form import normalise

MIN_JACCARD = 0.8
"""From this Jaccard similarity on, texts nearly duplicate each other."""
MIN_WORDS = 20
"""A text with fewer words is not compared."""
_SHINGLE_WORDS = 3
_WORD = re.compile(rf"[{CJK}]|[^\W_{CJK}]+")
# Texts with a similarity of 0.8 share no band once in 20 million times, with 0.85 never in practice.
_NUM_BANDS = 32
_BAND_ROWS = 4
# Each shingle is hashed by every permutation at once: this bounds the memory for pages of any length.
_BATCH_SHINGLES = 4_096

Shingles = NDArray[np.uint64]


def compute_shingles(text: str) -> Shingles:
    """The set of shingles of a text: 64-bit hashes of them, each once, in ascending order; none of a short text."""
    words = _WORD.findall(normalise(text).casefold())
    if len(words) < MIN_WORDS:
        return np.empty(0, np.uint64)
    runs = zip(*(words[start:] for start in range(_SHINGLE_WORDS)), strict=False)
    digests = (hashlib.blake2b(" ".join(run).encode(), digest_size=8).digest() for run in runs)
    return np.unique(np.frombuffer(b"".join(digests), "<u8"))


def find_similar(sets: Sequence[Shingles]) -> Iterator[tuple[int, int]]:
    """Places of each two sets with a Jaccard similarity of `MIN_JACCARD` or more, the smaller place first.

    No set may be empty. They should differ, as the number of pairs is the square of the number of sets that are alike.
    """
    from datasketch import MinHash, MinHashLSH  # with much of SciPy: only who compares pages need wait for it

    num_permutations = _NUM_BANDS * _BAND_ROWS
    empty = MinHash(num_perm=num_permutations, scheme="affine64", hashfunc=int)
    bands = MinHashLSH(num_perm=num_permutations, params=(_NUM_BANDS, _BAND_ROWS))
    for place, shingles in enumerate(sets):
        signature = empty.copy()
        for start in range(0, len(shingles), _BATCH_SHINGLES):
            signature.update_batch(shingles[start : start + _BATCH_SHINGLES].tolist())
        for other in sorted(key for key in bands.query(signature) if isinstance(key, int)):
            if _is_similar(sets[other], shingles):
                yield other, place
        bands.insert(place, signature)


def _is_similar(left: Shingles, right: Shingles) -> bool:
    smaller, larger = sorted((len(left), len(right)))
    if smaller / larger < MIN_JACCARD:  # the similarity is no greater than that
        return False
    num_common = len(np.intersect1d(left, right, assume_unique=True))
    return num_common / (smaller + larger - num_common) >= MIN_JACCARD

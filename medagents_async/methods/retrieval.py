"""Which texts are the most like a query: BM25 over words, on this machine, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial


class Index:
    """Okapi BM25 (k1 = 1.5, b = 0.75) over `texts`, English stop words left out."""

    def __init__(self, texts: Sequence[str]) -> None:
        import bm25s  # takes as long as all of this package, and most methods need none of it

        self._split = partial(bm25s.tokenize, stopwords="en", return_ids=False, show_progress=False)
        self._size = len(texts)
        words = self._split(list(texts))
        self._index = bm25s.BM25() if any(words) else None  # the library knows no empty ones
        if self._index is not None:
            self._index.index(words, show_progress=False)

    def top(self, query: str, k: int) -> list[int]:
        """Places of the `k` best texts, the best first; of equals the earlier, as of misses."""
        (words,) = self._split([query])
        if not words or self._index is None:
            return list(range(min(k, self._size)))
        best: list[int] = (-self._index.get_scores(words)).argsort(kind="stable")[:k].tolist()
        return best

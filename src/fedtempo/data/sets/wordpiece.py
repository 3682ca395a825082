"""BERT's uncased tokenizer: words and punctuation, then the longest pieces the vocabulary has."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import numpy as np

from fedtempo.errors import DataError

_LONGEST_WORD = 100
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_ASCII_WORD = re.compile(r"[a-z0-9]+|[^a-z0-9 ]")
_CHINESE = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2CEAF), (0x2F800, 0x2FA1F))


class WordPiece:
    """Text to token numbers, as Devlin et al.'s `uncased` tokenizer does it.

    Lower case without accents, split at spaces and around punctuation; each word is then cut from the left into the
    longest pieces in the vocabulary, where a piece inside a word begins with "##". A word that cannot be cut is [UNK].
    """

    def __init__(self, vocabulary: list[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        if missing := [name for name in _SPECIAL if name not in self._numbers]:
            raise DataError(f"the vocabulary must hold {missing[0]}. Got {len(vocabulary)} other pieces.")
        self.pad, self._unknown, self._first, self._last = (self._numbers[name] for name in _SPECIAL)
        self._pieces = lru_cache(maxsize=1 << 17)(self._cut)

    def encode(self, text: str, most: int) -> list[int]:
        """[CLS], the pieces and [SEP], at most `most` numbers."""
        pieces = [number for word in words(text) for number in self._pieces(word)]
        return [self._first, *pieces[: most - 2], self._last]

    def encode_all(self, texts: list[str], most: int) -> tuple[np.ndarray, np.ndarray]:
        """Token numbers, padded to the longest text, and the mask that is 1 where there is a token."""
        rows = [self.encode(text, most) for text in texts]
        lengths = np.array([len(row) for row in rows])
        width = int(lengths.max())
        tokens = np.full((len(rows), width), self.pad, dtype=np.int32)
        mask = (np.arange(width) < lengths[:, None]).astype(np.uint8)
        tokens[mask == 1] = np.concatenate(rows)
        return tokens, mask

    def _cut(self, word: str) -> tuple[int, ...]:
        if len(word) > _LONGEST_WORD:
            return (self._unknown,)
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            stop = next((s for s in range(len(word), start, -1) if prefix + word[start:s] in self._numbers), None)
            if stop is None:
                return (self._unknown,)
            found.append(self._numbers[prefix + word[start:stop]])
            start = stop
        return tuple(found)


def words(text: str) -> list[str]:
    """Lower-case words and single punctuation marks.

    >>> words("It's CAFÉ-time")
    ['it', "'", 's', 'cafe', '-', 'time']
    """
    if text.isascii() and text.isprintable():  # nine texts in ten, and twenty times as fast
        return _ASCII_WORD.findall(text.lower())
    plain = unicodedata.normalize("NFD", "".join(map(_clean, text)).lower())
    spaced = (f" {c} " if _stands_alone(c) else c for c in plain if unicodedata.category(c) != "Mn")
    return "".join(spaced).split()


def _clean(character: str) -> str:
    if character in "\t\n\r" or unicodedata.category(character) == "Zs":
        return " "
    return "" if character in "\0\ufffd" or unicodedata.category(character).startswith("C") else character


def _stands_alone(character: str) -> bool:
    code = ord(character)
    ascii_mark = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_mark or unicodedata.category(character).startswith("P") or any(a <= code <= b for a, b in _CHINESE)

"""Sentiment140: tweets, positive or negative by the emoticons that were taken out of them; users are clients."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

import numpy as np

from fedtempo.data.files.archives import read_zip
from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.parts import TRAIN
from fedtempo.data.sets.words import latest_for_testing, most_used
from fedtempo.data.table import Table
from fedtempo.errors import DataError, is_count, is_number, require

_ARCHIVE = "trainingandtestdata.zip"
_TWEETS = "training.1600000.processed.noemoticon.csv"
_WORD = re.compile(r"[\w']+|[.,!?;]")
_LABELS = {"0": 0, "4": 1}
_PADDING, _UNKNOWN, _FIRST = 0, 1, 2


def sentiment140(sources: Sources, words: int = 10_000, max_words: int = 25, test: float = 0.2) -> Table:
    """Tweets as the numbers of their first words, and 1 for a positive one; 659,775 users are the natural clients.

    `input_ids` has `max_words` numbers: 0 is padding, 1 a word that is not among the `words` most used ones, and
    `attention_mask` is 0 at padding, so `models.word_average(words + 2, ...)` takes it. Words are LEAF's (letters,
    digits and apostrophes, or one of `.,!?;`), in lower case. LEAF numbers them by GloVe's vocabulary; here they are
    counted in the training part. The last 20 % of each user's tweets in time are the test part. Most users have one
    tweet: `natural(min_rows=...)` takes those with more, `natural(clients=100)` the busiest.

    The authors' 498 tweets for testing are by other users, and a third of them is neutral; they are not read.
    """
    require(is_count(words), "words", "an int >= 1", words)
    require(is_count(max_words), "max_words", "an int >= 1", max_words)
    require(is_number(test) and 0 <= test < 1, "test", "a fraction in [0, 1)", test)
    settings = {"words": words, "max_words": max_words, "test": test}
    arrays = cached(sources, settings, lambda: _decode(sources, words, max_words, test))
    columns = {name: arrays[name] for name in ("input_ids", "attention_mask", "y")}
    return Table("sentiment140", columns, arrays["user"], arrays["part"], key_names=arrays["names"].tolist())


def _decode(sources: Sources, words: int, max_words: int, test: float) -> dict[str, np.ndarray]:
    labels, numbers, users, texts = [], [], [], []
    for label, number, user, text in _rows(sources):
        labels.append(label)
        numbers.append(number)
        users.append(user)
        texts.append(text)
    names, owner = np.unique(np.array(users), return_inverse=True)
    order = np.lexsort((np.array(numbers, dtype=np.int64), owner))  # numbers of tweets grow with time
    part = latest_for_testing(owner[order], test)
    training = (texts[row] for row, where in zip(order.tolist(), part.tolist(), strict=True) if where == TRAIN)
    # Texts are cut into words twice: the words of all tweets at once would take gigabytes.
    known = most_used((word for text in training for word in _words(text)), words)
    tokens = np.full((len(texts), max_words), _PADDING, dtype=np.int32)
    for place, row in enumerate(order.tolist()):
        found = [known.get(word, _UNKNOWN - _FIRST) + _FIRST for word in _words(texts[row])[:max_words]]
        tokens[place, : len(found)] = found
    return {
        "input_ids": tokens,
        "attention_mask": (tokens != _PADDING).astype(np.uint8),
        "y": np.array(labels, dtype=np.int64)[order],
        "user": owner[order].astype(np.int64),
        "names": names,
        "part": part,
    }


def _rows(sources: Sources) -> Iterator[tuple[int, int, str, str]]:
    """Label, number, user and text of every tweet, from lines of polarity, number, date, query, user and text."""
    members = dict(read_zip(sources[_ARCHIVE], lambda name: name == _TWEETS))
    if _TWEETS not in members:
        raise DataError(f"{_ARCHIVE} must hold {_TWEETS}. Got other files.")
    # As published: ISO 8859-1, in which every byte is a letter. No line needs more than a tweet's length.
    table = csv.reader(io.StringIO(members[_TWEETS].decode("latin-1"), newline=""))
    while True:
        try:
            row = next(table, None)
            if row is None:
                return
            polarity, number, _, _, user, text = row
            yield _LABELS[polarity], int(number), user, text
        except (csv.Error, ValueError, KeyError) as error:
            rule = "polarity (0 or 4), number, date, query, user and text in every line"
            what = f"polarity {error}" if isinstance(error, KeyError) else error
            raise DataError(f"{_TWEETS} must hold {rule}. Line {table.line_num}: {what}.") from None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


SENTIMENT140 = DataSet(
    name="sentiment140",
    load=sentiment140,
    files=(
        File(
            _ARCHIVE,
            ("004a3772c8a7ff9bbfeb875880f47f0679d93fc63e5cf9cff72d54a8a6162e57",),
            81363704,
            "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip",
        ),
    ),
    ways=((_ARCHIVE,),),
    page="http://help.sentiment140.com/for-students",
    licence="not stated by the authors; offered for research",
    citation="Go, Bhayani and Huang, Twitter Sentiment Classification using Distant Supervision (2009); Caldas et al., "
    "LEAF (2018) for the task",
    clients="users: 659,775",
    about="1,600,000 tweets, half of them positive, half negative",
)

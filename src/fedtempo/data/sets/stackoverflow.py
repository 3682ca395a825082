"""Stack Overflow: predict a question's tags from the words of its title; users are clients."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import numpy as np

from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.files.safe import gunzip, read_text
from fedtempo.data.parts import TRAIN
from fedtempo.data.sets.words import latest_for_testing, most_used
from fedtempo.data.table import Table
from fedtempo.errors import DataError, is_count, is_number, require

_QUESTIONS = "so_questions_title_tags_users.jsonl.gz"
_WORD = re.compile(r"[a-z0-9_]+[#+]*(?:\.[a-z0-9_]+)*|\.net")


class _Question(NamedTuple):
    user: int
    asked: str
    number: int
    words: list[str]
    tags: list[str]


def stackoverflow(sources: Sources, tokens: int = 10_000, tags: int = 500, test: float = 0.2) -> Table:
    """Titles as bags of the most used words, the most used tags as several targets at once.

    `x` is dense: one byte per word, 1 where the title has it (not the frequencies of TensorFlow Federated), so that
    any model takes it and a batch is one read; 10,000 words x 22,739 questions are 227 MB on disk, mapped, not
    loaded. `y` is boolean, one column per tag; train with loss="multilabel". The last 20 % of each user's questions
    in time are the test part. Words and tags are counted in the training part only. Questions without any of the
    tags are left out, and users who then have no training question.
    """
    require(is_count(tokens), "tokens", "an int >= 1", tokens)
    require(is_count(tags), "tags", "an int >= 1", tags)
    require(is_number(test) and 0 <= test < 1, "test", "a fraction in [0, 1)", test)
    settings = {"tokens": tokens, "tags": tags, "test": test}
    arrays = cached(sources, settings, lambda: _decode(_questions(sources), tokens, tags, test))
    columns = {"x": arrays["x"], "y": arrays["y"]}
    # (0, 1) leaves the numbers as they are; a column that is normalised is read as floating-point numbers.
    return Table("stackoverflow", columns, arrays["user"], arrays["part"], normalise={"x": (0.0, 1.0)})


def _questions(sources: Sources) -> list[_Question]:
    """All questions, user after user, each user's in the order of asking."""
    found = []
    for number, line in enumerate(read_text(gunzip(sources[_QUESTIONS], _QUESTIONS), _QUESTIONS).splitlines()):
        try:
            row = json.loads(line)
            words = _WORD.findall(str(row["title"]).lower())
            tags = [str(tag) for tag in row["tags"]]
            found.append(_Question(int(row["user_id"]), str(row["created"]), int(row["question_id"]), words, tags))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{_QUESTIONS} must hold a question in every line. Line {number + 1}: {error}.") from None
    return sorted(found)


def _decode(questions: list[_Question], tokens: int, tags: int, test: float) -> dict[str, np.ndarray]:
    user = np.array([question.user for question in questions], dtype=np.int64)
    part = latest_for_testing(user, test)
    training = [question for question, where in zip(questions, part, strict=True) if where == TRAIN]
    known_words = most_used((word for question in training for word in question.words), tokens)
    known_tags = most_used((tag for question in training for tag in question.tags), tags)
    y = _presence([question.tags for question in questions], known_tags).astype(bool)
    tagged = y.any(axis=1)
    keep = tagged & np.isin(user, user[tagged & (part == TRAIN)])
    x = _presence([question.words for question, kept in zip(questions, keep, strict=True) if kept], known_words)
    return {"x": x, "y": y[keep], "user": user[keep], "part": part[keep]}


def _presence(rows: list[list[str]], known: dict[str, int]) -> np.ndarray:
    found = np.zeros((len(rows), len(known)), dtype=np.uint8)
    for number, names in enumerate(rows):
        found[number, [known[name] for name in names if name in known]] = 1
    return found


_STACKOVERFLOW_FILES = (
    File(
        "so_questions_title_tags_users.jsonl.gz",
        ("18d242b00bc1c0cd7995274bbb21a72ad7e3ce85b4f740885bebd98078458a6d",),
        1171540,
    ),
)
STACKOVERFLOW = DataSet(
    name="stackoverflow",
    load=stackoverflow,
    files=_STACKOVERFLOW_FILES,
    ways=(("so_questions_title_tags_users.jsonl.gz",),),
    page="https://archive.org/details/stackexchange",
    licence="CC BY-SA 2.5 / 3.0 / 4.0 by date of post",
    citation="Stack Exchange, Stack Overflow questions; Reddi et al. (2021) for the task",
    clients="users: 2,531",
    about="22,739 question titles with tags (a sample, not random)",
)

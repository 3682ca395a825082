"""SST-2 of GLUE: film-review phrases, positive or negative, as BERT's tokens."""

from __future__ import annotations

import numpy as np

from fedtempo.data.files.archives import read_zip
from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.files.safe import gunzip, read_text
from fedtempo.data.parts import TEST, TRAIN, VALIDATION
from fedtempo.data.table import Table
from fedtempo.errors import DataError, is_count, is_number, require
from fedtempo.randomness import generator
from fedtempo.support.extras import library

_ARCHIVE, _VOCABULARY = "SST-2.zip", "vocab.txt"
_HEADING = "sentence\tlabel"
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_UNKNOWN = {"unk_token": "[UNK]", "max_input_chars_per_word": 100}


def sst2(sources: Sources, max_length: int = 128, validation: float = 0.2, seed: int = 0) -> Table:
    """GLUE's training phrases and, as the test part, its labelled dev phrases; no natural clients.

    Columns `input_ids` and `attention_mask` (BERT's uncased vocabulary, at most `max_length` tokens, padded to the
    longest phrase there is) and `y` (1 is positive). As in FedDecay's code, a random fifth of the training phrases is
    the validation part and GLUE's dev phrases are the test part; split with `dirichlet(clients=50, alpha=0.4)`.
    """
    require(is_count(max_length, 3), "max_length", "an int >= 3", max_length)
    require(is_number(validation) and 0 <= validation < 1, "validation", "a fraction in [0, 1)", validation)
    arrays = cached(sources, {"max_length": max_length}, lambda: _decode(sources, max_length))
    parts = np.array(arrays["part"])
    training = np.flatnonzero(parts == TRAIN)
    chosen = generator(seed, "sst2 validation").permutation(training)[: round(validation * len(training))]
    parts[chosen] = VALIDATION
    return Table("sst2", {name: arrays[name] for name in ("input_ids", "attention_mask", "y")}, parts=parts)


def _decode(sources: Sources, max_length: int) -> dict[str, np.ndarray]:
    vocabulary = read_text(sources[_VOCABULARY].read_bytes(), _VOCABULARY).splitlines()
    pieces = [_phrases(sources, name) for name in ("train", "dev")]
    texts = [text for phrases, _ in pieces for text in phrases]
    tokens, mask = uncased_tokens(texts, vocabulary, max_length)
    part = np.repeat(np.array([TRAIN, TEST], dtype=np.int8), [len(labels) for _, labels in pieces])
    labels = np.array([label for _, labels in pieces for label in labels], dtype=np.int64)
    return {"input_ids": tokens, "attention_mask": mask, "y": labels, "part": part}


def uncased_tokens(texts: list[str], vocabulary: list[str], most: int) -> tuple[np.ndarray, np.ndarray]:
    """Token numbers of BERT's uncased tokenizer, padded to the longest text, and the mask that is 1 where a token is.

    Every row is [CLS], the pieces of the text and [SEP], at most `most` numbers. Needs the `text` extra.
    """
    theirs = library("tokenizers", "text", "data set 'sst2'", DataError)
    numbers = {piece: number for number, piece in enumerate(vocabulary)}
    if missing := [name for name in _SPECIAL if name not in numbers]:
        raise DataError(f"the vocabulary must hold {missing[0]}. Got {len(vocabulary)} other pieces.")
    tokenizer = theirs.Tokenizer(theirs.models.WordPiece(numbers, **_UNKNOWN))
    tokenizer.normalizer = theirs.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = theirs.pre_tokenizers.BertPreTokenizer()
    ends = [(name, numbers[name]) for name in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = theirs.processors.BertProcessing(*ends)
    tokenizer.enable_truncation(most)
    # One text at a time: a batch would start threads, and the processes that are forked later complain about them.
    rows = [tokenizer.encode(text).ids for text in texts]
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.full(mask.shape, numbers["[PAD]"], dtype=np.int32)
    tokens[mask] = np.concatenate(rows)
    return tokens, mask.astype(np.uint8)


def _phrases(sources: Sources, name: str) -> tuple[list[str], list[int]]:
    """The phrases and labels of a GLUE file: a heading, then a phrase, a tab and 0 or 1 in every line."""
    text = read_text(_content(sources, name), f"{name}.tsv")
    lines = text.rstrip("\n").split("\n")
    rows = [line.rstrip("\r").rpartition("\t") for line in lines[1:]]
    wrong = next((number for number, row in enumerate(rows) if not row[1] or row[2] not in ("0", "1")), None)
    if lines[0].rstrip("\r") != _HEADING or not rows or wrong is not None:
        line = 1 if wrong is None else wrong + 2
        raise DataError(
            f"{name}.tsv must be {_HEADING!r}, then a phrase, a tab and 0 or 1 in every line. See line {line}."
        )
    return [row[0] for row in rows], [int(row[2]) for row in rows]


def _content(sources: Sources, name: str) -> bytes:
    if _ARCHIVE not in sources:
        return gunzip(sources[f"{name}.tsv.gz"], f"{name}.tsv.gz")
    members = dict(read_zip(sources[_ARCHIVE], lambda member: member == f"SST-2/{name}.tsv"))
    if not members:
        raise DataError(f"{_ARCHIVE} must hold SST-2/{name}.tsv. Got other files.")
    return members[f"SST-2/{name}.tsv"]


_BERT_URL = "https://huggingface.co/google/bert_uncased_L-2_H-128_A-2/resolve/main/"
_SST2_FILES = (
    File(
        "SST-2.zip",
        ("d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",),
        7439277,
        "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
    ),
    File("train.tsv.gz", ("1c4843303462f8f93e006ff618a9e61d207468cafd030046d7d7fd6b78af342b",), 1443733),
    File("dev.tsv.gz", ("19553efc6f7bac0b7fdd37d4e29dc37c15e9e779767249a16f857fbfcedb23fa",), 38131),
    File(
        "vocab.txt",
        ("07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",),
        231508,
        _BERT_URL + "vocab.txt",
        folder="bert_tiny",
    ),
)
SST2 = DataSet(
    name="sst2",
    load=sst2,
    files=_SST2_FILES,
    ways=(("SST-2.zip", "vocab.txt"), ("train.tsv.gz", "dev.tsv.gz", "vocab.txt")),
    page="https://gluebenchmark.com",
    licence="not stated (GLUE); offered for research",
    citation="Socher et al. (2013); Wang et al., GLUE (2019); vocabulary: Devlin et al., BERT (2019)",
    clients="none",
    about="67,349 / 872 film-review phrases, positive or negative",
)

"""Shakespeare: the plays speech by speech, and karpathy's extract; roles are clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.files.safe import gunzip, read_text
from fedtempo.data.sets.characters import Windows, cut
from fedtempo.data.table import Table
from fedtempo.errors import DataError

_SPEECHES = "shakespeare_speeches.jsonl.gz"
_PLAIN, _PACKED = "input.txt", "tinyshakespeare_input.txt.gz"


def shakespeare(
    sources: Sources,
    *,
    target: str = "sequence",
    window: int = 80,
    stride: int | None = None,
    validation: float = 0.0,
    test: float = 0.2,
    limit: int | None = None,
) -> Table:
    """Windows of 80 characters of what each (play, role) says, in play order; 77 classes, the last for unknown ones.

    `target="sequence"` has as `y` the window moved on by one character and cuts without overlap (`stride` is the
    window), as TensorFlow Federated does; `target="next"` has the one character that follows, as in LEAF, with
    `stride=1` for all of LEAF's windows (4 million rows, 350 MB). The last 20 % of each role are its test part; no
    window reaches over that border, so keep these parts (`validation` here, not in `split`) where windows overlap.
    Roles too short for a training window are left out. `limit` keeps so many training windows of each role and that
    share of it in the other parts (FedNAR: 2,000 and 400, with `natural(clients=100)`).

    The text is the MIT edition, not LEAF's Gutenberg one.
    """
    windows = Windows(window, window if stride is None else stride, target, validation, test, limit)
    return _table(sources, windows, lambda: _plays(sources))


def tinyshakespeare(
    sources: Sources,
    *,
    target: str = "sequence",
    window: int = 80,
    stride: int | None = None,
    validation: float = 0.0,
    test: float = 0.2,
    limit: int | None = None,
) -> Table:
    """Karpathy's 1.1 million characters in the same form; a client is a role's name, over all plays together."""
    windows = Windows(window, window if stride is None else stride, target, validation, test, limit)
    return _table(sources, windows, lambda: _extract(sources))


def _table(sources: Sources, windows: Windows, texts: Callable[[], Mapping[str, str]]) -> Table:
    arrays = cached(sources, asdict(windows), lambda: cut(texts(), windows))
    return Table(
        sources.name,
        {"x": arrays["x"], "y": arrays["y"]},
        keys=arrays["owner"],
        parts=arrays["part"],
        key_names=arrays["names"].tolist(),
    )


def _plays(sources: Sources) -> dict[str, str]:
    """What each (play, role) says; speeches without a role are slips of mark-up in the source and are skipped."""
    spoken: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(gunzip(sources[_SPEECHES], _SPEECHES), _SPEECHES).splitlines()):
        try:
            speech = json.loads(line)
            play, role, text = (speech[field] for field in ("play", "role", "text"))
            if not all(isinstance(value, str) for value in (play, role, text)):
                raise ValueError("play, role and text must be text")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{_SPEECHES} must hold a speech in every line. Line {number + 1}: {error}.") from None
        if role:
            spoken.setdefault(f"{play}/{role}", []).append(text)
    return {name: "\n".join(texts) for name, texts in spoken.items()}


def _extract(sources: Sources) -> dict[str, str]:
    """Speeches are separated by an empty line and begin with a line `ROLE:`."""
    content = sources[_PLAIN].read_bytes() if _PLAIN in sources else gunzip(sources[_PACKED], _PACKED)
    spoken: dict[str, list[str]] = {}
    for block in read_text(content, sources.name).split("\n\n"):
        heading, _, text = block.strip("\n").partition("\n")
        if heading.endswith(":") and text:
            spoken.setdefault(heading[:-1], []).append(text)
    if not spoken:
        raise DataError(f"{sources.name} must hold speeches that begin with a line 'ROLE:'. Got none.")
    return {name: "\n".join(texts) for name, texts in spoken.items()}


_CHAR_RNN_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
_SHAKESPEARE_FILES = (
    File(
        "shakespeare_speeches.jsonl.gz", ("29f57ac26463e3e5848cc38e2642c92eed8a598717de51ecc688935c039724a6",), 2038445
    ),
)
_TINYSHAKESPEARE_FILES = (
    File(
        "input.txt",
        ("86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",),
        1115394,
        _CHAR_RNN_URL + "input.txt",
    ),
    File("tinyshakespeare_input.txt.gz", ("bed00f18e91cda6838950656f0a95e07e0f4dbe8649a4b959f7602a7e53fbc6e",), 433627),
)
SHAKESPEARE = DataSet(
    name="shakespeare",
    load=shakespeare,
    files=_SHAKESPEARE_FILES,
    ways=(("shakespeare_speeches.jsonl.gz",),),
    page="https://shakespeare.mit.edu/",
    licence="public domain (Moby Shakespeare)",
    citation="Shakespeare, complete plays; Caldas et al., LEAF (2018) for the task",
    clients="(play, role): 1,346",
    about="30,943 speeches of 37 plays, 4.3 million characters",
)
TINYSHAKESPEARE = DataSet(
    name="tinyshakespeare",
    load=tinyshakespeare,
    folder="shakespeare",
    files=_TINYSHAKESPEARE_FILES,
    ways=(("input.txt",), ("tinyshakespeare_input.txt.gz",)),
    page="https://github.com/karpathy/char-rnn",
    licence="public domain",
    citation="Karpathy, char-rnn (2015)",
    clients="roles, all plays together",
    about="1.1 million characters of Shakespeare",
)

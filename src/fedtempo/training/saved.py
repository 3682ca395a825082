"""A result as one file, and what can be done with it without the experiment.

The file is safetensors: tensors and text, nothing that could run. `about.json` in it holds the numbers and the form of
the server's state, `sha256` is the hash of everything else. It finds damage, not forgery: it has no key.
"""

from __future__ import annotations

import errno
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from fedtempo.errors import OutputError, StoreError, require
from fedtempo.params import Params, leaves
from fedtempo.schedules import Now
from fedtempo.support.display import html_of, show
from fedtempo.support.files import write_atomically
from fedtempo.support.room import require_room
from fedtempo.training.round_report import RoundReport, RunHistory, from_json, to_json
from fedtempo.training.state import digest_of, tensors_from_bytes, tensors_to_bytes
from fedtempo.training.storage.seals import MALFORMED

if TYPE_CHECKING:
    import pandas as pd

    from fedtempo.support.table import ResultTable

VERSION = 1
ABOUT, HASH = "about.json", "sha256"


Which = Literal["selected", "last"]
"""The round that validation selected (the last one where there is no validation), or the last."""


def require_which(which: str) -> None:
    """Refuse what is neither the selected nor the last round."""
    require(which in get_args(Which), "which", " or ".join(map(repr, get_args(Which))), which)


class Snapshot(NamedTuple):
    """The run after one of its rounds."""

    round: int
    shared: Params
    server: Any
    now: Now
    """Where that round stood; its rates are those of fine-tuning."""


class FinishedRun(RunHistory):
    """What a result can do with its rounds and models, whether it is in memory or was read from a file."""

    last: Snapshot
    chosen: Snapshot | None

    def at(self, which: Which = "selected") -> Snapshot:
        """The run after the selected round, or after the last."""
        require_which(which)
        return self.chosen if self.chosen is not None and which == "selected" else self.last

    @abstractmethod
    def served(self, which: Which = "selected") -> Params:
        """The parameters that are served after the selected round, or after the last."""

    @property
    def params(self) -> Params:
        """The shared model of the selected round; `result.at("last").shared` is that of the last."""
        return self.at().shared

    @property
    def server_state(self) -> Any:
        """The server's state after the selected round."""
        return self.at().server

    @property
    def model_params(self) -> Params:
        """The parameters that are served: the selected round's model, or FedExP's mean of two."""
        return self.served()

    def table(self) -> ResultTable:
        """Existing and new users: mean, bottom decile, spread, and what it cost."""
        table: ResultTable = show(self, "table")
        return table

    def to_frame(self) -> pd.DataFrame:
        """Scores as a pandas frame, a row per round, part, group and metric."""
        frame: pd.DataFrame = show(self, "frame")
        return frame

    def history_frame(self) -> pd.DataFrame:
        """Losses, costs and times as a pandas frame, a row per round."""
        frame: pd.DataFrame = show(self, "history_frame")
        return frame

    def save_frame(self, path: str | Path) -> Path:
        """Write the rows of `to_frame` to a .csv or .parquet file."""
        written: Path = show(self, "frame_file", Path(path))
        return written


NEEDS_THE_RUN = ("model", "predict", "personalize", "save_model")


@dataclass
class SavedResult(FinishedRun):
    """A result that was read from a file: its numbers, tables and tensors. To train or predict takes the run itself."""

    summary: dict[str, Any]
    """Algorithm, data, scores, costs, notes and digest, as in a run folder's summary.json."""
    identity: dict[str, str]
    """What decided the run's numbers, by field."""
    history: list[RoundReport]
    last: Snapshot
    chosen: Snapshot | None = None
    served_params: dict[Which, Params] = field(default_factory=dict, repr=False)
    personal: dict[int, Params] = field(default_factory=dict, repr=False)
    """Personal tensors after the last round, of clients that took part. A private run's are not saved."""
    personal_selected: dict[int, Params] = field(default_factory=dict, repr=False)
    """Those that were others after the selected round."""

    def __getattr__(self, name: str) -> Any:
        if name in NEEDS_THE_RUN:
            how = "Load its tensors into your module: module.load_state_dict(result.served() | result.client_state(i))"
            raise AttributeError(f"{name} takes the run itself: a saved result has neither model nor data. {how}.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def served(self, which: Which = "selected") -> Params:
        """The parameters that are served after the selected round, or after the last."""
        return {**self.at(which).shared, **self.served_params["last" if self.chosen is None else which]}

    def client_state(self, client: int, which: Which = "selected") -> Params:
        """A client's personal tensors after the selected round, or after the last."""
        selected = self.at(which) is self.chosen
        kept = (self.personal_selected if selected and client in self.personal_selected else self.personal).get(client)
        if kept is None and not self.personal and "privacy" not in self.summary:
            return {}  # clients of this algorithm keep nothing
        if kept is None:
            raise StoreError(f"client must be one that took part and whose tensors were saved. Got {client}.")
        return dict(kept)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the run decided, and what looked wrong with it, a line each."""
        return tuple(self.summary["notes"])

    def digest(self) -> str:
        """The run's digest when it was saved."""
        return str(self.summary["digest"])

    def save(self, path: str | Path) -> Path:
        """Write the result to one file, which `ft.load_result` reads."""
        return write_atomically(path, self.to_bytes(), "path")

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        about = {
            "version": VERSION,
            "summary": self.summary,
            "identity": self.identity,
            "history": [to_json(report) for report in self.history],
            "snapshots": {which: _described(self.at(which)) for which in self._rounds()},
        }
        tensors = {ABOUT: torch.from_numpy(np.frombuffer(json.dumps(about).encode(), dtype=np.uint8).copy())}
        for which in self._rounds():
            tensors |= leaves(self.at(which).shared, f"{which}/shared") | leaves(
                self.at(which).server, f"{which}/server"
            )
            tensors |= leaves(self.served_params[which], f"{which}/served")
        for part, states in (("last", self.personal), ("selected", self.personal_selected)):
            for client, state in states.items():
                tensors |= leaves(dict(state), f"{part}/client {client}")
        return tensors_to_bytes({**tensors, HASH: _hash(tensors)})

    def _rounds(self) -> list[Which]:
        return ["last"] if self.chosen is None else ["last", "selected"]

    def __repr__(self) -> str:
        algorithm, rounds = self.summary["algorithm"], len(self.history)
        return f"SavedResult({algorithm}, {rounds} rounds, digest {self.digest()[:12]})"

    def _repr_html_(self) -> str:
        return html_of(self.table())


def load_result(path: str | Path) -> SavedResult:
    """The result that `Result.save` wrote: scores, costs, history and tensors, without data, model and algorithm."""
    try:
        place = Path(path).expanduser()
        size = place.stat().st_size
        if not place.is_file():  # a pipe would be waited for
            raise OSError(errno.EINVAL, "it is no file")
        require_room(3.0 * size, place.name)
        data = place.read_bytes()
    except OSError as error:
        raise OutputError(f"path must be a saved result. Got {path}: {error.strerror or error}.") from None
    try:
        return saved_from_bytes(data)
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None


def saved_from_bytes(data: bytes) -> SavedResult:
    """The inverse of `SavedResult.to_bytes`."""
    tensors = tensors_from_bytes(data)
    if ABOUT not in tensors or HASH not in tensors:
        raise StoreError(f"a saved result must hold {ABOUT!r} and {HASH!r}. It does not.")
    stored = tensors.pop(HASH)
    if not torch.equal(stored, _hash(tensors)):
        raise StoreError("a saved result must be as it was written. Its hash does not fit: it is damaged.")
    try:
        return _read(json.loads(tensors.pop(ABOUT).numpy().tobytes()), tensors)
    except MALFORMED as error:  # somebody else may have made the file, and can make its hash fit
        raise StoreError(
            f"a saved result must have the form of one. It cannot be read ({type(error).__name__})."
        ) from None


def _read(about: Mapping[str, Any], tensors: Params) -> SavedResult:
    """The result in a file; anything that is missing or has another form raises one of `MALFORMED`."""
    require(about["version"] == VERSION, "version", f"{VERSION}, which this FedTempo reads", about["version"])
    trees: dict[str, dict[str, Params]] = {"last": {}, "selected": {}}
    for name, tensor in tensors.items():
        which, part, rest = name.split("/", 2) if name.count("/") > 1 else (*name.split("/"), "")
        trees[which].setdefault(part, {})[rest] = tensor
    rounds = {which: _snapshot(form, trees[which]) for which, form in about["snapshots"].items()}
    served: dict[Which, Params] = {which: trees[which].get("served", {}) for which in rounds}
    return SavedResult(
        dict(about["summary"]),
        dict(about["identity"]),
        [from_json(text) for text in about["history"]],
        rounds["last"],
        rounds.get("selected"),
        served,
        _clients(trees["last"]),
        _clients(trees["selected"]),
    )


def _hash(tensors: Params) -> Tensor:
    return torch.frombuffer(bytearray(digest_of(tensors)), dtype=torch.uint8)


def _clients(parts: Mapping[str, Params]) -> dict[int, Params]:
    return {int(part.removeprefix("client ")): t for part, t in parts.items() if part.startswith("client ")}


def _described(snapshot: Snapshot) -> dict[str, Any]:
    return {"round": snapshot.round, "now": asdict(snapshot.now), "server": _form(snapshot.server)}


def _snapshot(form: Mapping[str, Any], parts: Mapping[str, Params]) -> Snapshot:
    server = _filled(form["server"], parts.get("server", {}), "")
    return Snapshot(form["round"], parts.get("shared", {}), server, Now(**form["now"]))


def _form(tree: Any) -> Any:
    """Nested dicts and tuples without their tensors: a dict, a list, and None for a tensor."""
    if isinstance(tree, Tensor):
        return None
    return {k: _form(v) for k, v in tree.items()} if isinstance(tree, dict) else [_form(part) for part in tree]


def _filled(form: Any, tensors: Params, path: str) -> Any:
    if form is None:
        return tensors[path]
    if isinstance(form, dict):
        return {key: _filled(part, tensors, f"{path}/{key}".lstrip("/")) for key, part in form.items()}
    return tuple(_filled(part, tensors, f"{path}/{index}".lstrip("/")) for index, part in enumerate(form))

"""The PFLEGO paper: Table 1 and Figure 2 (degrees of personalization)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fedtempo.papers.framework.claims import Claim, all_of, higher, lower, where_tuned
from fedtempo.papers.framework.definitions import Data, Model, PaperRun, Scale, Training, Tuning, sized
from fedtempo.papers.framework.figures import Curves, Sweep
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes
from fedtempo.papers.pflego.setting import (
    ADAM,
    COLUMNS,
    CONVERGED,
    FEDAVG,
    FEDPER,
    FEDPER_ADAM,
    KEPT,
    LOSS,
    PFLEGO,
    PFLEGO_SGD,
    SERVED,
    TUNED,
    Method,
    five_methods,
    pflego_measures,
    pflego_settings,
    pflego_tuning,
    random_classes,
    three_methods,
)

DEGREES: dict[str, Any] = {"high": "High", "medium": "Medium", "none": "No"}
PREFIXES = tuple(f"{degree}: " for degree in DEGREES)
CLASSES_DRAWN = (
    "Each client's classes are drawn at random, and a class's rows are dealt among the clients that have it."
)
USUAL_FEDAVG = (
    "FedAvg's model has one output for each class of the data set. In the released code it has as many as one client "
    "has classes, numbered inside each client, so that one output means different classes to different clients."
)
SMALLER = (
    "Small: fewer and smaller clients, half of their rows for the test, and fewer but longer steps, so that rounds, "
    "tau x beta and rho are the paper's. Medium: 40 such clients, 64 units instead of 200, rates tuned for each method "
    "(rho for PFLEGO, beta for the others), validation selects the round."
)


def training(label: str, method: Method, scale: Scale, seed: int, classes: int) -> Training:
    """A run with so many classes per client."""
    validation = scale.settings.get("validation", 0.0)
    parts = {} if scale["test"] is None else {"validation": validation, "test": scale["test"]}
    own = method.own_classes and scale["own_classes"]
    data = Data(
        scale["data"],
        random_classes(scale["clients"], classes),
        seed,
        {**parts, "relabel": own},
        rows=scale["rows"],
    )
    return Training(
        label,
        data,
        Model(*scale["model"]),
        method.algorithm,
        pflego_settings(scale, seed, method),
        pflego_measures(scale),
    )


def _labels(degree: str) -> tuple[str, str, str]:
    return f"{degree}: {PFLEGO}", f"{degree}: {FEDPER}", f"{degree}: {FEDAVG}"


def _methods(scale: Scale, of: str = "") -> dict[str, Method]:
    """The paper's three; where rates are tuned also the two that take the server's optimizer apart."""
    return three_methods(scale, of) if scale.tuning is None else five_methods(scale, of)


def _one_degree(degree: str, scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [training(label, one, scale, seed, scale["degrees"][degree]) for label, one in _methods(scale).items()]


def _all_degrees(scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [
        training(f"{degree}: {label}", method, scale, seed, classes)
        for degree, classes in scale["degrees"].items()
        for label, method in _methods(scale, f"{degree}: ").items()
    ]


def _claims(degree: str, ours: str, fedper: str, fedavg: str) -> tuple[Claim, ...]:
    """What section 4.4 says about a degree; whether it is so before a client's own steps is a question of ours."""
    if degree == "none":
        pairs = (
            ("Without personalization FedAvg is more accurate than PFLEGO", fedavg, ours),
            ("Without personalization FedAvg is more accurate than FedPer", fedavg, fedper),
        )
    else:
        pairs = (
            (f"{DEGREES[degree]} personalization: PFLEGO is more accurate than FedPer", ours, fedper),
            (f"{DEGREES[degree]} personalization: PFLEGO is more accurate than FedAvg", ours, fedavg),
        )
    after_and_before = tuple(
        Claim(f"{text}{when}.", higher(better, worse, column), section)
        for text, better, worse in pairs
        for when, column, section in (("", TUNED, "4.4"), (", before a client's own steps too", KEPT, ""))
    )
    return after_and_before if degree == "none" else (*after_and_before, *_server_claims(ours, fedper))


def _server_claims(ours: str, fedper: str) -> tuple[Claim, ...]:
    """Our own: they tell whether the lead is the exact gradient's or Adam's."""
    printed, adam = ours.replace(PFLEGO, PFLEGO_SGD), fedper.replace(FEDPER, FEDPER_ADAM)
    where = ours.removesuffix(PFLEGO)
    return (
        Claim(
            f"{where}PFLEGO as printed, with SGD at the server, is more accurate than FedPer.",
            where_tuned(higher(printed, fedper, TUNED)),
        ),
        Claim(
            f"{where}PFLEGO is more accurate than FedPer with Adam at the server.",
            where_tuned(higher(ours, adam, TUNED)),
        ),
    )


Cells = Mapping[str, tuple[float, float, float]]


def _reported(cells: Cells) -> dict[str, dict[str, float]]:
    """From percentages in the order PFLEGO, FedPer, FedAvg."""
    return {
        label: {TUNED: round(value / 100, 4)}
        for degree, row in cells.items()
        for label, value in zip(_labels(degree), row, strict=True)
    }


PAPER_MLP: dict[str, Any] = {
    "rounds": 200,
    "every": 20,
    "cohort": 0.2,
    "clients": 100,
    "tau": 50,
    "beta": 0.007,
    "rho": 0.001,
    "last": 10,
}
SMALL_MLP: dict[str, Any] = {
    "rounds": 200,
    "every": 40,
    "cohort": 0.2,
    "clients": 20,
    "tau": 5,
    "beta": 0.07,
    "rho": 0.001,
}
MEDIUM_MLP: dict[str, Any] = {
    **SMALL_MLP,
    "every": 20,
    "clients": 40,
    "validation": 0.2,
    "test": 0.4,
}
SMOKE: dict[str, Any] = {
    "rounds": 2,
    "every": 2,
    "cohort": 2,
    "clients": 4,
    "tau": 2,
    "beta": 0.05,
    "rho": 0.004,
    "test": 0.4,
    "last": 2,
}
TEN = {"high": 2, "medium": 5, "none": 10}
MLP: tuple[str, Mapping[str, Any]] = ("mlp", {})


def _mlp_scales(data: str, minutes: tuple[float, float, float], rows: int, tuning: Tuning) -> dict[str, Scale]:
    """The network with 200 units on MNIST or Fashion-MNIST."""
    fixed: dict[str, Any] = {"data": data, "degrees": TEN, "own_classes": True}
    tiny = ("mlp", {"hidden": [8]})
    return {
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE, **fixed, rows=600, model=tiny),
        "small": sized(seeds=3, minutes=minutes[0], **SMALL_MLP, **fixed, rows=rows, test=0.5, model=MLP),
        "medium": sized(
            seeds=5,
            minutes=minutes[1],
            tuning=tuning,
            settling=CONVERGED,
            **MEDIUM_MLP,
            **fixed,
            rows=12_000,
            model=("mlp", {"hidden": [64]}),
        ),
        "paper": sized(seeds=5, minutes=minutes[2], **PAPER_MLP, **fixed, rows=None, test=None, model=MLP),
    }


MNIST_CELLS: Cells = {"high": (98.43, 97.88, 97.54), "medium": (94.22, 92.83, 92.83), "none": (90.68, 87.23, 93.12)}


def _mnist(degree: str) -> Reproduction:
    """One column of Table 1 and of Figure 2."""
    columns = zip((PFLEGO, FEDPER, FEDAVG), MNIST_CELLS[degree], strict=True)
    faster = Claim(
        "PFLEGO's training loss is lower than FedPer's and FedAvg's after the same number of rounds.",
        all_of(lower(PFLEGO, FEDPER, LOSS), lower(PFLEGO, FEDAVG, LOSS)),
        "4.4",
    )
    return Reproduction(
        name=f"pflego-mnist-{degree}",
        paper="pflego",
        source="Table 1 and Figure 2",
        title=f"MNIST, {DEGREES[degree].lower()} personalization",
        scales=_mlp_scales("mnist", (1, 8, 150), rows=6_000, tuning=pflego_tuning()),
        runs=partial(_one_degree, degree),
        columns=COLUMNS,
        reported={label: {TUNED: round(value / 100, 4)} for label, value in columns},
        claims=(*_claims(degree, PFLEGO, FEDPER, FEDAVG), *(() if degree == "none" else (faster,))),
        figures=(
            Curves("loss", "train_loss", Axes("training loss of the round's clients", "round", "loss", log_y=True)),
            Curves("accuracy", "existing_after", Axes("accuracy after own steps", "round", "accuracy")),
        ),
        chart="accuracy",
        notes=(SERVED, CLASSES_DRAWN, USUAL_FEDAVG, ADAM, SMALLER),
    )


def degrees_table(
    name: str, title: str, scales: Mapping[str, Scale], cells: Cells, *notes: str, looks: int = 1
) -> Reproduction:
    """A data set's columns of Table 1."""
    series = {
        method: {float(place): f"{degree}: {method}" for place, degree in enumerate(DEGREES)}
        for method in (PFLEGO, FEDPER, FEDAVG)
    }
    return Reproduction(
        name=name,
        paper="pflego",
        source="Table 1",
        title=title,
        scales=scales,
        runs=_all_degrees,
        columns=COLUMNS,
        reported=_reported(cells),
        claims=tuple(claim for degree in DEGREES for claim in _claims(degree, *_labels(degree))),
        looks=looks,
        figures=(
            Sweep(
                "degrees",
                TUNED,
                Axes("test accuracy after own steps", "personalization", "accuracy", ticks=tuple(DEGREES)),
                series,
            ),
        ),
        notes=(SERVED, CLASSES_DRAWN, USUAL_FEDAVG, ADAM, *notes),
    )


FASHION = degrees_table(
    "pflego-fashion-mnist",
    "Fashion-MNIST, three degrees of personalization",
    _mlp_scales("fashion_mnist", (2, 25, 450), rows=4_000, tuning=pflego_tuning(*PREFIXES)),
    {"high": (96.34, 96.14, 96.35), "medium": (89.84, 88.22, 87.51), "none": (81.49, 77.44, 83.59)},
    SMALLER,
    "In the paper's own table FedAvg, not PFLEGO, is ahead at high personalization (96.35 to 96.34).",
    looks=2,
)


REPRODUCTIONS = (*map(_mnist, DEGREES), FASHION)

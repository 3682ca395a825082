"""What is asked of every control: to be ahead of its baseline where both are trained, and at equal local steps."""

from __future__ import annotations

from fedtempo.papers.control.methods import BASELINES, FEDAVG, METHODS, USERS
from fedtempo.papers.framework.claims import Claim, higher
from fedtempo.papers.framework.definitions import Column, Values, score_column
from fedtempo.papers.framework.figures import Figure, Points, Sweep
from fedtempo.papers.framework.svg import Axes

END, AT_STEPS, NEW = f"{USERS}/mean", f"{USERS}/at_steps", "new_after/mean"
GAIN, GAIN_AT_STEPS = "gain", "gain_at_steps"
CONTENDERS = [label for label in METHODS if label != FEDAVG]


def control_gains(values: Values) -> Values:
    """Test accuracy, and accuracy at equal steps, over FedAvg's."""
    return {
        label: {
            GAIN: own[END] - values[FEDAVG][END],
            GAIN_AT_STEPS: own[AT_STEPS] - values[FEDAVG][AT_STEPS],
        }
        for label, own in values.items()
    }


COLUMNS = {
    END: score_column("test accuracy"),
    GAIN: score_column("gain over FedAvg", "+.3f", of_one_run=False),
    NEW: score_column("new users"),
    AT_STEPS: Column("validation accuracy at equal steps", margin=0.01),
    GAIN_AT_STEPS: Column("gain over FedAvg", "+.3f"),
    "rounds": Column("rounds", ".0f"),
    "selected": Column("tested round", ".0f"),
    "steps": Column("local steps", ".0f"),
}
TRAINED, EQUAL_STEPS = "where both are trained", "at equal local steps"


def ahead(label: str, baseline: str, where: str = TRAINED) -> str:
    """The claim that is made of every method."""
    return f"{label} is ahead of {baseline} {where}."


CLAIMS = tuple(
    Claim(ahead(label, baseline, where), higher(label, baseline, column))
    for label in CONTENDERS
    for baseline in (BASELINES.get(label, FEDAVG),)
    for where, column in ((TRAINED, END), (EQUAL_STEPS, AT_STEPS))
)


def control_figures(title: str) -> tuple[Figure, ...]:
    """Every method's gain over FedAvg, and accuracy against the steps it took."""
    places = {float(place): label for place, label in enumerate(CONTENDERS)}
    return (
        Sweep(
            "gain",
            GAIN,
            Axes(f"{title}: trained", "method", "gain over FedAvg", reference=0.0, ticks=tuple(CONTENDERS)),
            {"where trained": places},
        ),
        Points("steps", "steps", END, Axes(f"{title}: accuracy and work", "local steps of the run", "test accuracy")),
    )

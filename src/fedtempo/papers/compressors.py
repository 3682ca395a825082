"""Accuracy against bytes: four compressors of uploads, each with and without a memory of its errors.

All runs take the same rounds and steps. What a run pays is what its clients send up, so scores are compared twice:
after the same rounds, and where the same number of bytes has been sent up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedtempo.algorithms import fedavg
from fedtempo.client.compression import Compressor, qsgd, random_k, sign, top_k
from fedtempo.client.compression.packing import packed_forms
from fedtempo.data import natural
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.federation.traffic import bytes_of
from fedtempo.models import MODELS
from fedtempo.papers.framework.budgets import at_budgets
from fedtempo.papers.framework.claims import Claim, higher
from fedtempo.papers.framework.definitions import (
    Column,
    Curve,
    Data,
    Measured,
    Model,
    PaperRun,
    Scale,
    Settling,
    Training,
    TunedSetting,
    Tuning,
    score_column,
    sized,
)
from fedtempo.papers.framework.figures import Curves, Points
from fedtempo.papers.framework.measures import learning, users
from fedtempo.papers.framework.reproduction import Reproduction
from fedtempo.papers.framework.svg import Axes
from fedtempo.training.result import Result

PLAIN = "no compression"
TOP, RANDOM, LEVELS, SIGNS = "top-k 1 %", "random-k 1 %", "QSGD, 15 levels", "signs"
FOUR: dict[str, Compressor] = {
    TOP: top_k(0.01, feedback="none"),
    RANDOM: random_k(0.01),
    LEVELS: qsgd(15),
    SIGNS: sign(feedback="none"),
}
DENSEST = LEVELS
"""Its whole run is the budget of bytes: what is cheaper counts with its last score."""
GROUP = "existing_before"
ACCURACY, AT_BYTES, VALIDATED = f"{GROUP}/mean", f"{GROUP}/at_bytes_up", f"{GROUP}/best"
A_POINT = 0.01


def remembering(name: str, rule: str = "EF14") -> str:
    """The label of a compressor with a memory."""
    return f"{name}, {rule}"


def compressor_rules() -> dict[str, Compressor | None]:
    """Every run's compressor by its label."""
    kept = {remembering(name): _with_feedback(rule, "ef14") for name, rule in FOUR.items()}
    last = {remembering(TOP, "EF21"): _with_feedback(FOUR[TOP], "ef21")}
    return {PLAIN: None, **FOUR, **kept, **last}


def _with_feedback(rule: Compressor, feedback: Any) -> Compressor:
    return replace(rule, feedback=feedback, settings={**rule.settings, "feedback": feedback})


def spent_up(result: Result) -> Measured:
    """`bytes_up` of the whole run, and the global model's validation score against them."""
    evaluated = [(report, report.scores) for report in result.history if report.scores is not None]
    spent = tuple(float(report.total_costs.bytes_up) for report, _ in evaluated)
    scores = tuple(s.groups()[GROUP].summary(s.metric)["mean"] for _, s in evaluated)
    return Measured({"bytes_up": result.costs.bytes_up}, {"by_bytes": Curve(spent, scores)})


def bytes_of_a_run(rule: Compressor, model: Model, scale: Scale) -> int:
    """What all clients of a run send up with this compressor."""
    tensors = MODELS[model.name](**model.settings).state_dict()
    forms = packed_forms(rule, {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()})
    return int(scale["rounds"]) * int(scale["cohort"]) * bytes_of(forms)


def _runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    model = Model("mlp", {"hidden": [scale["hidden"]], "outputs": 62})
    parts = {"new_clients": 0.0, "validation": 0.2, "test": 0.2}
    data = Data("femnist", natural(scale["clients"]), seed, parts, {"writers": "all"})
    settings = {
        "rounds": scale["rounds"],
        "cohort": scale["cohort"],
        "batch_size": 16,
        "seed": seed,
        "evaluation": Evaluation(every=scale["every"], steps=0),
    }
    budget = {"bytes_up": bytes_of_a_run(FOUR[DENSEST], model, scale)}
    measures = (users, spent_up, partial(learning, group=GROUP), partial(at_budgets, group=GROUP, budgets=budget))
    return [
        Training(
            label,
            data,
            model,
            fedavg(scale.rate(label, scale["lr"]), scale["k"], compress=rule),
            settings,
            measures,
        )
        for label, rule in compressor_rules().items()
    ]


CLAIMS = (
    *(
        Claim(f"{name}: the memory makes the model better, after the same rounds.", higher(memory, name, ACCURACY))
        for name, memory in ((name, remembering(name)) for name in FOUR)
    ),
    Claim("top-k 1 %: EF21 is better than EF14.", higher(remembering(TOP, "EF21"), remembering(TOP), ACCURACY)),
    *(
        Claim(
            f"{name} with its memory is within a point of no compression, after the same rounds.",
            higher(remembering(name), PLAIN, ACCURACY, -A_POINT),
        )
        for name in FOUR
    ),
    *(
        Claim(
            f"{name} with its memory is better than no compression once the same bytes were sent up.",
            higher(remembering(name), PLAIN, AT_BYTES),
        )
        for name in FOUR
    ),
)
SMOKE: dict[str, Any] = {"rounds": 2, "cohort": 2, "every": 1, "clients": 5, "hidden": 8, "k": 2, "lr": 0.1}
SMALL: dict[str, Any] = {**SMOKE, "rounds": 100, "cohort": 5, "every": 5, "clients": 30, "hidden": 64, "k": 10}
MEDIUM: dict[str, Any] = {**SMALL, "rounds": 300, "every": 10, "clients": 50, "hidden": 32}
RATES = (0.03, 0.1, 0.3)
FEMNIST_BYTES = Reproduction(
    name="compression-femnist",
    paper="compression",
    source="FEMNIST",
    title="accuracy against bytes, four compressors with and without a memory",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, **SMOKE),
        "small": sized(seeds=3, minutes=4, **SMALL),
        "medium": sized(
            seeds=5,
            minutes=16,
            tuning=Tuning(
                {label: TunedSetting(label, RATES) for label in compressor_rules()}, VALIDATED, settings={"rounds": 60}
            ),
            settling=Settling(GROUP, 0.01),
            **MEDIUM,
        ),
        "paper": sized(
            seeds=10, minutes=1500, **{**MEDIUM, "rounds": 2000, "cohort": 10, "clients": 1000, "hidden": 200}
        ),
    },
    runs=_runs,
    columns={
        ACCURACY: score_column("accuracy"),
        AT_BYTES: Column("accuracy at equal bytes", margin=A_POINT),
        "bytes_up": Column("bytes up", ".3g", exact=True),
        VALIDATED: Column("best validation accuracy"),
    },
    claims=CLAIMS,
    figures=(
        Curves("bytes", "by_bytes", Axes("FEMNIST", "bytes sent up", "validation accuracy", log_x=True)),
        Points("end", "bytes_up", ACCURACY, Axes("FEMNIST", "bytes sent up", "accuracy", log_x=True)),
    ),
    notes=(
        "No paper has these numbers. The claims are our questions.",
        "FedAvg; downloads are not compressed. Accuracy is the mean over users on their own test rows with the global"
        " model of the round that validation selects.",
        "Equal bytes are those of the whole QSGD run. Without compression they are spent after a sixth of the rounds; a"
        " cheaper run counts with its last score. Scores between evaluations are interpolated.",
        "Each tensor is compressed by itself, biases too: of a bias of 62 numbers top-k sends one.",
    ),
)

REPRODUCTIONS = (FEMNIST_BYTES,)

"""FedDecay, Tables 3, 4, 5, 7 and Figures 1 and 2: PubMed's communities, new and existing users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedtempo.data import louvain
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.feddecay.methods import (
    BETTER_THAN_FEDEM,
    CLAIMS,
    COLUMNS,
    CONVERGED,
    DITTO,
    FEDBN,
    FEDDECAY,
    FEDEM,
    FEDSGD,
    FOMAML,
    PFEDME,
    RESILIENT,
    MethodRates,
    feddecay_tuning,
    method_figures,
)
from fedtempo.papers.feddecay.users import NO_CLIPPING, TUNING_LR, beta_sweep, table_row, trainings
from fedtempo.papers.framework.definitions import Data, Model, PaperRun, Scale, sized
from fedtempo.papers.framework.outcomes import Units
from fedtempo.papers.framework.reproduction import Reproduction

COMMUNITIES = 5
"""Of one partition, so four seeds with the same new user are no four samples of users."""
PUBMED_RATES: dict[str, Any] = {
    "small": MethodRates(
        0.5, {}, lam=0.1, pfedme_lam=0.5, pfedme_lr=1.0, pfedme_steps=1, clip=NO_CLIPPING, weight_decay=5e-4
    ),
}
PUBMED_RATES["paper"] = replace(PUBMED_RATES["small"], own={DITTO: 0.005, FEDBN: 0.005}, ditto_epochs=1, pfedme_lr=0.5)


def _pubmed_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    # Every community is held out in turn.
    data = Data(
        scale["graph"], louvain(COMMUNITIES), 0, {"new_clients": [seed % COMMUNITIES], "validation": 0.1, "test": 0.1}
    )
    features, outputs = {"pubmed": (500, 3), "cora": (1433, 7)}[scale["graph"]]
    model = Model("gin", {"features": features, "outputs": outputs, "hidden": scale["hidden"]})
    return trainings(scale, seed, data, model, PUBMED_RATES[scale["rates"]], Evaluation(steps=5, lr=TUNING_LR), {})


PUBMED = Reproduction(
    name="feddecay-pubmed",
    paper="feddecay",
    source="Tables 3, 4, 5, 7 and Figures 1, 2",
    title="PubMed, new and existing users after fine-tuning",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, rounds=1, cohort=1.0, every=1, graph="cora", hidden=2, rates="small"),
        "small": sized(seeds=3, minutes=3, rounds=24, cohort=1.0, every=8, graph="pubmed", hidden=16, rates="small"),
        "medium": sized(
            seeds=10,
            minutes=30,
            tuning=feddecay_tuning(0.15, 0.5, 1.5, rounds=30),
            settling=CONVERGED,
            rounds=80,
            cohort=1.0,
            every=5,
            patience=4,
            graph="pubmed",
            hidden=16,
            rates="small",
        ),
        "paper": sized(seeds=3, minutes=120, rounds=500, cohort=1.0, every=5, graph="pubmed", hidden=64, rates="paper"),
    },
    runs=_pubmed_runs,
    columns=COLUMNS,
    claims=(*CLAIMS, BETTER_THAN_FEDEM, RESILIENT),
    looks=2,
    units=Units("communities", COMMUNITIES),
    reported={
        **beta_sweep({0.2: (85.67, 79.68), 0.6: (86.65, 79.86), 0.8: (86.59, 79.32), 1.0: (86.29, 79.50)}),
        DITTO: table_row((0.2442,), (0.8754, 0.8465, 0.0236)),
        FEDBN: table_row((0.8004,), (0.8788, 0.8540, 0.0248)),
        FEDEM: table_row((0.7879,), (0.8822, 0.8478, 0.0322)),
        PFEDME: table_row((0.7932,), (0.8666, 0.8205, 0.0334)),
        FOMAML: table_row((0.7950,), (0.8614, 0.8292, 0.0284)),
        FEDSGD: table_row((0.7914,), (0.8671, 0.8342, 0.0267)),
        FEDDECAY[0.4]: table_row((0.8039,), (0.8722, 0.8490, 0.0233)),
    },
    figures=method_figures(0.4),
    chart="beta-existing",
    notes=(
        "Small scale: 16 hidden units instead of 64 and 24 rounds instead of 500; one user of five is held out, another"
        " one for each seed.",
        "Fine-tuning is five steps at learning rate 0.01, as in the code that made the tables.",
        "Seeds share one partition into five communities; a seed holds out one of them and draws the start. An interval"
        " is over the five communities, each the mean of its seeds.",
        "All steps are full batch, so an epoch is a step and the paper's decay is the code's.",
        "The paper's FedAvg of Tables 3 and 4 was tuned to one epoch: it is our FedSGD row, as Table 5 confirms.",
        "Table 7, means over three seeds (new, existing): FedDecay 0.7950, 0.8704; FedAvg 0.7914, 0.8666; FOMAML"
        " 0.7855, 0.8597. The authors' FOMAML rows were made by code that ran FedAvg.",
    ),
)

"""FedDecay, Tables 3 to 5 and Figures 1 and 2: SST-2, with 20,000 of its phrases and with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedtempo.data import dirichlet
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.papers.feddecay.methods import (
    BETTER_THAN_FEDEM,
    CLAIMS,
    COLUMNS,
    CONVERGED,
    DITTO,
    FEDAVG,
    FEDBN,
    FEDDECAY,
    FEDEM,
    FOMAML,
    LINEAR_FOR_NEW,
    PFEDME,
    MethodRates,
    feddecay_tuning,
    method_figures,
)
from fedtempo.papers.feddecay.users import ANYBODY, beta_sweep, table_row, trainings
from fedtempo.papers.framework.definitions import Data, Model, PaperRun, Scale, sized
from fedtempo.papers.framework.reproduction import Reproduction

WITHOUT_BATCH_NORM = tuple(claim for claim in CLAIMS if FEDBN not in claim.text)
"""No network here has BatchNorm, so FedBN is FedAvg and no rival."""
SST2_RATES: dict[str, Any] = {
    "small": MethodRates(2.0, {}, lam=0.8, pfedme_lam=0.8, pfedme_lr=0.625, pfedme_rounds=10),
    "paper": MethodRates(0.05, {FEDBN: 0.1}, lam=0.8, pfedme_lam=0.8, pfedme_lr=0.05, pfedme_rounds=51),
}


def _sst2_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    division = {"new_clients": 0.2, "min_samples": 4}
    if scale["rates"] == "paper":
        data = Data("sst2", dirichlet(scale["clients"], 0.4), seed, {"new_clients": 0.2, "min_samples": 1})
        model = Model("bert_tiny", {"outputs": 2}, files="bert_tiny")
        return trainings(
            scale, seed, data, model, SST2_RATES["paper"], Evaluation(), {ANYBODY: 16, FEDBN: 64, PFEDME: 64}
        )
    parts = {"validation": 0.2, "test": 0.2}
    data = Data("sst2", dirichlet(scale["clients"], 0.4), seed, {**division, **parts}, rows=scale["rows"])
    model = Model("word_average", {"width": scale["width"], "hidden": 2 * scale["width"]})
    return trainings(scale, seed, data, model, SST2_RATES["small"], Evaluation(), {ANYBODY: 16})


SST2 = Reproduction(
    name="feddecay-sst2",
    paper="feddecay",
    source="Tables 3, 4, 5 and Figures 1, 2",
    title="SST-2, new and existing users after fine-tuning",
    scales={
        "smoke": sized(seeds=1, minutes=0.1, rounds=1, cohort=2, every=1, clients=5, rows=100, width=1, rates="small"),
        "small": sized(
            seeds=3, minutes=3, rounds=40, cohort=8, every=20, clients=50, rows=5000, width=16, rates="small"
        ),
        "medium": sized(
            seeds=5,
            minutes=40,
            tuning=feddecay_tuning(0.5, 1.5, 5.0, rounds=60),
            settling=CONVERGED,
            rounds=120,
            cohort=8,
            every=10,
            patience=4,
            clients=50,
            rows=20_000,
            width=16,
            rates="small",
        ),
        "paper": sized(seeds=1, minutes=2500, rounds=500, cohort=0.2, every=5, clients=50, rates="paper"),
    },
    runs=_sst2_runs,
    columns=COLUMNS,
    claims=(*WITHOUT_BATCH_NORM, BETTER_THAN_FEDEM, LINEAR_FOR_NEW),
    looks=2,
    reported={
        **beta_sweep({0.0: (73.60, 80.30), 0.2: (67.01, 59.02), 0.4: (69.42, 67.26), 0.8: (74.64, 76.14)}),
        DITTO: table_row((0.4746, 0.0000, 0.4010), (0.5949, 0.0417, 0.3449)),
        FEDBN: table_row((0.8030, 0.6667, 0.1275), (0.7360, 0.4000, 0.2292)),
        FEDEM: table_row((0.7404, 0.6379, 0.2141), (0.7808, 0.5000, 0.1845)),
        PFEDME: table_row((0.7785, 0.6406, 0.1179), (0.7699, 0.6087, 0.1672)),
        FOMAML: table_row((0.7680, 0.6667, 0.1057), (0.7654, 0.5556, 0.1634)),
        FEDAVG: table_row((0.7680, 0.6667, 0.1057), (0.7654, 0.5556, 0.1634)),
        FEDDECAY[0.6]: table_row((0.8101, 0.6724, 0.1087), (0.7815, 0.5556, 0.1727)),
    },
    figures=method_figures(0.6),
    chart="beta-existing",
    notes=(
        "Small scale: the mean of word vectors drawn at random and a hidden layer instead of a pretrained BERT-Tiny,"
        " 5,000 phrases, 40 rounds at learning rate 2. A fifth of each client's own phrases is its test part; the paper"
        " deals out GLUE's 872 dev phrases, about 17 for each user.",
        "Neither network has BatchNorm, so FedBN is FedAvg here, as it was in the paper's code; the paper's FedBN row"
        " is the FedSGD row of Table 5, and its FOMAML row is FedAvg's.",
        "The paper scale needs BERT-Tiny's weights in the data folder `bert_tiny`.",
    ),
)

TOO_SLOW = (DITTO, FEDEM)
"""Methods that no claim about all phrases needs, and that take half of the time."""


def _all_phrases_runs(scale: Scale, seed: int) -> Sequence[PaperRun]:
    return [run for run in _sst2_runs(scale, seed) if run.label not in TOO_SLOW]


SST2_ALL = replace(
    SST2,
    name="feddecay-sst2-all",
    source="Table 5",
    title="SST-2 with all of its phrases",
    scales={
        **SST2.scales,
        "medium": sized(
            seeds=5,
            minutes=45,
            tuning=feddecay_tuning(0.15, 0.5, 1.5, rounds=30, without=TOO_SLOW),
            settling=CONVERGED,
            rounds=60,
            cohort=8,
            every=5,
            patience=4,
            clients=50,
            rows=None,
            width=16,
            rates="small",
        ),
    },
    runs=_all_phrases_runs,
    claims=CLAIMS[:2],
    reported={label: values for label, values in SST2.reported.items() if label not in TOO_SLOW},
    figures=tuple(figure for figure in SST2.figures if figure.name.startswith("beta")),
    notes=(
        "The other section on SST-2 has 20,000 of the 67,349 phrases, twice as many rounds and ten seeds. Here a client"
        " takes three times as many local steps in a round, so smaller rates are tried.",
        SST2.notes[1],
    ),
)
"""All phrases, for the two claims that the others follow from."""

"""The measured columns of docs/methods.md: costs from `results/methods.json`, gains from the runs of docs/results.

`python -m benchmarks.methods_page` writes them anew; a test keeps them true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.methods import FILE, MORE, K
from fedtempo.papers import control
from fedtempo.papers.control import adapters, neighbours, personal
from fedtempo.papers.control.judging import END, ahead
from fedtempo.papers.control.methods import BASELINES, FEDAVG, OWN_DECAY
from fedtempo.papers.framework.claims import Answer, Verdict
from fedtempo.papers.framework.counting import judged_outcome
from fedtempo.papers.framework.outcomes import Outcome
from fedtempo.papers.framework.pages import verdicts
from fedtempo.papers.framework.reproduction import Reproduction

DOCS = Path(__file__).parent.parent / "docs"
PAGE, RESULTS = DOCS / "methods.md", DOCS / "results"
PICTURE = DOCS / "images" / "methods.svg"
UNKNOWN = "not measured"
WIDTH, INK = 1180, "#222222"
STEP_BY_STEP, BETWEEN_ROUNDS, AT_THE_SERVER = "#e0f2f1", "#fff3e0", "#e8eaf6"
WORTH_TELLING = 0.25
"""Steps of FedAvg's; less is within what two measurements differ by."""
ROW = re.compile(r"^(\| `(\w+)` \|(?: [^|]+ \|){4})[^|]+\|[^|]+\|$", re.MULTILINE)
ABOUT = re.compile(r"<!-- costs -->.*?<!-- end of costs -->", re.DOTALL)
LABELS = {
    **{"feddecay": "FedDecay", "delta_sgd": "Delta-SGD", "fedsps": "FedSPS", "feddecsps": "FedDecSPS"},
    **{"fedhyper_global": "FedHyper-G", "fedhyper_server": "FedHyper-SL", "fedhyper_client": "FedHyper-CL"},
    **{"stop_early": "stop early", "fednova": "FedNova, uneven K", "fednar": "FedNAR", "fedprox": "FedProx"},
    **{"scaffold": "SCAFFOLD", "feddyn": "FedDyn", "fedcm": "FedCM", "fedsam": "FedSAM", "fedexp": "FedExP"},
    **{"clip_then_decay": "FedAvg, clip then decay", "adaptive_decay": OWN_DECAY},
    "work_normalised": "FedNova, uneven K",
}
"""The method's label in the comparison of controls."""
PAGES = {
    "FedNAR's page": ("fednar", ("fedadam", "fedavgm")),
    "FedDecay's page": ("feddecay", ("fomaml", "ditto", "fedbn", "fedem", "pfedme")),
    "PFLEGO's page": ("pflego", ("pflego", "fedper", "fedrep", "fedbabu", "fedrecon_stateful")),
}
"""Where methods are compared that the comparisons of controls and of their neighbours leave out."""
OWN_WORDS = {
    "fedavg": "the baseline of the others",
    "adaptive_decay": f"as {OWN_DECAY}, a rule of ours: ",
    "work_normalised": "around FedAvg, as FedNova: ",
}
"""What a row says by itself, or before its verdicts."""
NEIGHBOURS = {
    **{"fedinit": neighbours.INIT, "fedspeed": neighbours.SPEED, "fedlesam": neighbours.LESAM, "moon": neighbours.MOON},
    **{"fedadamw": neighbours.ADAMW, "fedmuon": neighbours.MUON, "diloco": neighbours.DILOCO},
    **{"fedsgd": neighbours.SGD, "q_fedavg": neighbours.Q_AVG, "q_fedsgd": neighbours.Q_SGD, "afl": neighbours.AFL},
    **{"loss_weighted": neighbours.BY_LOSS, "reptile": neighbours.REPTILE, "fedyogi": neighbours.YOGI},
    **{"fedadagrad": neighbours.ADAGRAD, "server_decay": neighbours.DECAYED},
}
"""The method's label in the comparison of what else there is with one shared model."""
PERSONAL = {
    **{"fedala": personal.ALA, "lg_fedavg": personal.LG, "fedrod": personal.ROD, "apfl": personal.APFL},
    **{"local_only": personal.ALONE, "fedrecon": personal.RECON},
}
ADAPTERS = {"fedsa_lora": adapters.FEDSA, "ffa_lora": adapters.FFA, "fedex_lora": adapters.FEDEX}


GROUPS = {
    "Where a client starts": ("start", STEP_BY_STEP),
    "The direction of a step": ("direction", STEP_BY_STEP),
    "The rate": ("rate", STEP_BY_STEP),
    "How many steps": ("steps", STEP_BY_STEP),
    "What is personal": ("personal", BETWEEN_ROUNDS),
    "How much a client counts": ("weights", AT_THE_SERVER),
    "The server's step": ("server step", AT_THE_SERVER),
}
"""The page's sections of methods, with their heading and colour in the picture."""


def write() -> None:
    """Renew the page and its picture."""
    page = filled(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    PICTURE.write_text(picture(page), encoding="utf-8")


def picture(page: str) -> str:
    """The picture of the page's sections: a box for each, with its methods in the page's order."""
    sections = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", page, re.MULTILINE))
    names = {heading: re.findall(r"^\| `(\w+)` \|", sections[heading], re.MULTILINE) for heading in GROUPS}
    height = 104 + 22 * max(map(len, names.values()))
    pitch = (WIDTH - 10) / len(GROUPS)
    shapes: list[str] = []
    for place, (heading, (title, colour)) in enumerate(GROUPS.items()):
        left = 10 + round(place * pitch)
        right = left + round(pitch) - 7
        if place:
            shapes.append(f'<path d="M{left - 7} 66 h7" stroke="#546e7a" stroke-width="2"/>')
        shapes.append(
            f'<rect x="{left}" y="44" width="{right - left}" height="{height}" rx="6" '
            f'fill="{colour}" stroke="#90a4ae"/>'
        )
        middle = (left + right) // 2
        shapes.append(f'<text x="{middle}" y="70" text-anchor="middle" font-weight="bold" fill="{INK}">{title}</text>')
        for row, name in enumerate(names[heading]):
            shapes.append(f'<text x="{left + 10}" y="{102 + 22 * row}" fill="{INK}">{name}</text>')
    bottom = height + 70
    what = "start, direction, rate, steps, what is personal, weights, server step"
    heading = "One round, from left to right: what a client does, then what the server does"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-labelledby="title">\n'
        f'  <title id="title">What each method changes in a round: {what}</title>\n'
        f'  <rect width="{WIDTH}" height="{bottom}" fill="#ffffff"/>\n'
        f'  <text x="10" y="24" font-size="15" fill="{INK}">{heading}</text>\n'
    )
    legend = "green: at the client in every step; orange: between rounds; blue: at the server"
    foot = f'  <text x="10" y="{height + 60}" font-size="11" fill="#555555">{legend}</text>\n</svg>\n'
    return head + "".join(f"  {shape}\n" for shape in shapes) + foot


def filled(page: str) -> str:
    """The page with the two columns, and when the costs were measured."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    helped = gains(RESULTS)

    def row(found: re.Match[str]) -> str:
        measured = kept["costs"].get(found[2])
        return f"{found[1]} {_cost(measured) if measured else UNKNOWN} | {_helped(found[2], helped)} |"

    facts = kept["about"]
    about = f"Costs: `make bench ARGS=--methods` on {facts['date']}, {facts['machine']} ({facts['load']}); "
    about += (
        f"{kept['workload']}; processor time of a local step over FedAvg's, from rounds of {K} and of {MORE} steps "
    )
    about += (
        "in turn. In brackets: what a client's round costs besides, in steps of FedAvg's, from a quarter of one on."
    )
    return ABOUT.sub(f"<!-- costs -->\n{about}\n<!-- end of costs -->", ROW.sub(row, page))


def _cost(measured: Mapping[str, float]) -> str:
    """Of a step, and of a round besides; of a whole round where the method has no number of steps."""
    if "step" not in measured:
        return f"{measured['median']:.2f} (a whole round)"
    besides = f" ({measured['once']:+.1f})" if abs(measured["once"]) >= WORTH_TELLING else ""
    return f"{measured['step']:.2f}{besides}"


def _helped(name: str, helped: dict[str, list[str]]) -> str:
    if name in helped:
        return OWN_WORDS.get(name, "") + "; ".join(helped[name])
    elsewhere = [f"see [{title}](results/{page}.md)" for title, (page, names) in PAGES.items() if name in names]
    return elsewhere[0] if elsewhere else OWN_WORDS.get(name, UNKNOWN)


def gains(folder: Path) -> dict[str, list[str]]:
    """By method: the verdict on each data set that is stored, against the method's baseline where training stops."""
    found: dict[str, list[str]] = {}
    for experiment in control.CONTROLS:
        judged = _judged(experiment, folder)
        if judged is None:
            continue
        for name, label in LABELS.items():
            baseline = BASELINES.get(label, FEDAVG)
            words = f"{experiment.source}: {judged.words(ahead(label, baseline), label, baseline, END)}"
            found.setdefault(name, []).append(words)
    return found | _among_neighbours(folder) | _personal(folder)


@dataclass(frozen=True)
class _Judged:
    """An experiment's verdicts by claim, and the differences behind them."""

    verdicts: Mapping[str, Verdict]
    outcome: Outcome

    def words(self, claim: str, label: str, baseline: str, column: str) -> str:
        """The verdict on a claim, with the difference where there is one."""
        answer = self.verdicts[claim].answer
        there = label in self.outcome.labels
        by = f" by {abs(self.outcome.difference(label, baseline, column).mean):.3f}" if there else ""
        words = {
            Answer.HOLDS: f"ahead of {baseline}{by}",
            Answer.FAILS: f"behind {baseline}{by}",
            Answer.SAME: f"as {baseline}",
            Answer.IMPROVING: "not converged",
            Answer.NOT_RUN: "not run",
        }
        return words.get(answer, "cannot tell")


def _judged(experiment: Reproduction, folder: Path) -> _Judged | None:
    outcome = judged_outcome(experiment, folder)
    return None if outcome is None else _Judged(verdicts(experiment, outcome), outcome)


def _among_neighbours(folder: Path) -> dict[str, list[str]]:
    """On digits, for all users; of fair methods also for the tenth that is served worst."""
    judged = _judged(neighbours.NEIGHBOURS, folder)
    found: dict[str, list[str]] = {}
    if judged is None:
        return found
    for name, label in NEIGHBOURS.items():
        baseline = neighbours.BASELINES.get(label, FEDAVG)
        found[name] = [f"Digits: {judged.words(ahead(label, baseline), label, baseline, END)}"]
        if label in neighbours.FAIR:
            claim = ahead(label, baseline, neighbours.AMONG_WORST)
            found[name].append(f"worst-served tenth: {judged.words(claim, label, baseline, neighbours.WORST)}")
    return found


def _personal(folder: Path) -> dict[str, list[str]]:
    """Existing and new users, each after fine-tuning, against FedAvg with as much of it."""
    found: dict[str, list[str]] = {}
    compared = ((personal.PERSONAL, PERSONAL, "Digits"), (adapters.LORA, ADAPTERS, "MNIST"))
    for experiment, labels, data in compared:
        judged = _judged(experiment, folder)
        if judged is None:
            continue
        for name, label in labels.items():
            asked = {"existing": (personal.EXISTING_AFTER, personal.AFTER), "new": (personal.NEW_AFTER, personal.NEW)}
            found[name] = [
                f"{data}, {who} users: {judged.words(personal.better(label, FEDAVG, where), label, FEDAVG, column)}"
                for who, (where, column) in asked.items()
            ]
    return found


if __name__ == "__main__":
    write()

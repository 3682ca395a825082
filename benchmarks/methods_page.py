"""The measured columns of docs/methods.md: costs from `results/methods.json`, gains from the runs of docs/results.

`python -m benchmarks.methods_page` writes them anew; a test keeps them true.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.methods import FILE
from fedtempo.papers import control
from fedtempo.papers.control.judging import CONTENDERS, END, ahead
from fedtempo.papers.control.methods import BASELINES, FEDAVG
from fedtempo.papers.framework.claims import Answer
from fedtempo.papers.framework.counting import judged_outcome
from fedtempo.papers.framework.pages import verdicts

DOCS = Path(__file__).parent.parent / "docs"
PAGE, RESULTS = DOCS / "methods.md", DOCS / "results"
UNKNOWN = "not measured"
ROW = re.compile(r"^(\| `(\w+)` \|(?: [^|]+ \|){4})[^|]+\|[^|]+\|$", re.MULTILINE)
ABOUT = re.compile(r"<!-- costs -->.*?<!-- end of costs -->", re.DOTALL)
LABELS = {
    **{"feddecay": "FedDecay", "delta_sgd": "Delta-SGD", "fedsps": "FedSPS", "feddecsps": "FedDecSPS"},
    **{"fedhyper_global": "FedHyper-G", "fedhyper_server": "FedHyper-SL", "fedhyper_client": "FedHyper-CL"},
    **{"stop_early": "stop early", "fednova": "FedNova, uneven K", "fednar": "FedNAR", "fedprox": "FedProx"},
    **{"scaffold": "SCAFFOLD", "feddyn": "FedDyn", "fedcm": "FedCM", "fedsam": "FedSAM", "fedexp": "FedExP"},
    "clip_then_decay": "FedAvg, clip then decay",
}
"""The method's label in the comparison of controls."""
PAGES = {
    "FedNAR's page": ("fednar", ("fedadam", "fedavgm")),
    "FedDecay's page": ("feddecay", ("fomaml", "ditto", "fedbn", "fedem", "pfedme")),
    "PFLEGO's page": ("pflego", ("pflego", "fedper", "fedrep", "fedbabu", "fedrecon_stateful")),
}
"""Where methods are compared that the comparison of controls leaves out."""


def write() -> None:
    """Renew the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def filled(page: str) -> str:
    """The page with the two columns, and when the costs were measured."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    helped = gains(RESULTS)

    def row(found: re.Match[str]) -> str:
        measured = kept["costs"].get(found[2])
        cost = f"{measured['median']:.2f}" if measured else UNKNOWN
        return f"{found[1]} {cost} | {_helped(found[2], helped)} |"

    facts = kept["about"]
    about = f"Costs: `make bench ARGS=--methods` on {facts['date']}, {facts['machine']} ({facts['load']}); "
    about += f"{kept['workload']}; processor time per local step over FedAvg's, the median of rounds in turn."
    return ABOUT.sub(f"<!-- costs -->\n{about}\n<!-- end of costs -->", ROW.sub(row, page))


def _helped(name: str, helped: dict[str, list[str]]) -> str:
    if name in LABELS and LABELS[name] in helped:
        return "; ".join(helped[LABELS[name]])
    elsewhere = [f"[{title}](results/{page}.md)" for title, (page, names) in PAGES.items() if name in names]
    return f"see {elsewhere[0]}" if elsewhere else UNKNOWN


def gains(folder: Path) -> dict[str, list[str]]:
    """By label: the verdict on each data set that is stored, against the method's baseline where training stops."""
    found: dict[str, list[str]] = {}
    for experiment in control.REPRODUCTIONS:
        outcome = judged_outcome(experiment, folder)
        if outcome is None:
            continue
        judged = verdicts(experiment, outcome)
        for label in CONTENDERS:
            baseline = BASELINES.get(label, FEDAVG)
            answer = judged[ahead(label, baseline)].answer
            by = f" by {abs(outcome.difference(label, baseline, END).mean):.3f}" if label in outcome.labels else ""
            words = {
                Answer.HOLDS: f"ahead of {baseline}{by}",
                Answer.FAILS: f"behind {baseline}{by}",
                Answer.SAME: f"as {baseline}",
                Answer.IMPROVING: "not converged",
                Answer.NOT_RUN: "not run",
            }
            found.setdefault(label, []).append(f"{experiment.source}: {words.get(answer, 'cannot tell')}")
    return found


if __name__ == "__main__":
    write()

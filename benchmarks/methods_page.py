"""The measured columns of docs/methods.md: costs from `results/methods.json`, gains from docs/results/control.md.

`python -m benchmarks.methods_page` writes them anew; a test keeps them true.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.methods import FILE

DOCS = Path(__file__).parent.parent / "docs"
PAGE, GAINS = DOCS / "methods.md", DOCS / "results" / "control.md"
UNKNOWN = "not measured"
ROW = re.compile(r"^(\| `(\w+)` \|(?: [^|]+ \|){4})[^|]+\|[^|]+\|$", re.MULTILINE)
ABOUT = re.compile(r"<!-- costs -->.*?<!-- end of costs -->", re.DOTALL)
SECTION = re.compile(r"<!-- control-(\w+)-medium: begin -->(.*?)<!-- control-\1-medium: end -->", re.DOTALL)
VERDICT = re.compile(r"^\| (.+?) is ahead of (.+?) where both are trained\. \| \*\*(.+?)\*\* \|(.*)\|$", re.MULTILINE)
DIFFERENCE = re.compile(r" minus .+? is (-?[\d.e-]+) ")
DATA = {"femnist": "FEMNIST", "digits": "digits", "cifar10": "CIFAR-10", "shakespeare": "Shakespeare"}
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
    gains = _gains(GAINS.read_text(encoding="utf-8") if GAINS.exists() else "")

    def row(found: re.Match[str]) -> str:
        measured = kept["costs"].get(found[2])
        cost = f"{measured['median']:.2f}" if measured else UNKNOWN
        return f"{found[1]} {cost} | {_helped(found[2], gains)} |"

    facts = kept["about"]
    about = f"Costs: `make bench ARGS=--methods` on {facts['date']}, {facts['machine']} ({facts['load']}); "
    about += f"{kept['workload']}; processor time per local step over FedAvg's, the median of rounds in turn."
    return ABOUT.sub(f"<!-- costs -->\n{about}\n<!-- end of costs -->", ROW.sub(row, page))


def _helped(name: str, gains: dict[str, list[str]]) -> str:
    if name in LABELS and LABELS[name] in gains:
        return "; ".join(gains[LABELS[name]])
    elsewhere = [f"[{title}](results/{page}.md)" for title, (page, names) in PAGES.items() if name in names]
    return f"see {elsewhere[0]}" if elsewhere else UNKNOWN


def _gains(results: str) -> dict[str, list[str]]:
    """By label: the verdict on each data set, against the method's baseline where training stops."""
    found: dict[str, list[str]] = {}
    for name, section in SECTION.findall(results):
        for label, baseline, answer, reason in VERDICT.findall(section):
            difference = DIFFERENCE.search(reason)
            by = f" by {abs(float(difference[1])):.3f}" if difference else ""
            words = {
                "holds": f"ahead of {baseline}{by}",
                "does not hold": f"behind {baseline}{by}",
                "no difference": f"as {baseline}",
                "not converged": "not converged",
            }
            found.setdefault(label, []).append(f"{DATA[name]}: {words.get(answer, 'cannot tell')}")
    return found


if __name__ == "__main__":
    write()

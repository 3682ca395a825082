"""Experiments of several contenders one after the other: seconds, memory, and whether they did the same work."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.experiments.alone import timed
from benchmarks.experiments.data import columns
from benchmarks.experiments.plan import Experiment, by_name, first_network
from benchmarks.workloads import FOLDER

OURS, LOOP = "FedTempo", "hand-written, two processes"
MALLOC = {"MALLOC_TRIM_THRESHOLD_": "4294967296", "MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TOP_PAD_": "67108864"}
"""What the loop tells the allocator: keep memory, and do not map large blocks anew."""
LEAST_TIMES = 3.0
"""How many times FedTempo's seconds every other framework is to take."""
LARGEST_OFF, LARGEST_OFF_RANDOM = 0.05, 0.1
"""How far a contender's last accuracies may be from the loop's: E1 has 1,000 test rows, and rounding moves some of them
across a border after 50 rounds. With random crops nothing agrees exactly."""
Command = Callable[[Experiment], list[str]]
START, END = "<!-- experiments: begin -->", "<!-- experiments: end -->"
PAGES = {"experiments": report.PAGE, "experiments-peers": report.PAGE.with_name("benchmarks-peers.md")}


def own(module: str) -> Command:
    """A contender that runs in this environment."""
    return lambda experiment: [sys.executable, "-m", f"benchmarks.experiments.{module}", experiment.name]


def measured(name: str, peers: Mapping[str, Command], repeats: int, patience: float) -> dict[str, Any]:
    """One experiment with FedTempo, the loop and these peers. Who failed once is not asked again."""
    experiment = by_name(name)
    print(f"\n{experiment.title}", flush=True)
    columns(experiment)  # written before anybody's clock runs
    about = report.about()
    contenders = {OURS: own("ours"), LOOP: own("loop"), **peers}
    found: dict[str, list[dict[str, Any]]] = {who: [] for who in contenders}
    for turn in range(repeats):
        for place, (who, making) in enumerate(contenders.items()):
            if any("failed" in answer for answer in found[who]):
                continue
            log = FOLDER / "experiments" / f"{name}-{place}.log"
            found[who].append(_tried(making, experiment, log, patience, MALLOC if who == LOOP else {}))
            seconds = found[who][-1].get("seconds")
            print(f"  {turn + 1}: {who}: " + (f"{seconds:.1f} s" if seconds else found[who][-1]["failed"]), flush=True)
    facts = {who: _facts(experiment, answers, found[LOOP]) for who, answers in found.items()}
    return {"title": experiment.title, "about": about, "contenders": facts}


def _tried(making: Command, experiment: Experiment, log: Path, patience: float, more: dict[str, str]) -> dict[str, Any]:
    try:
        command = making(experiment)
    except Exception as error:  # whatever keeps a framework from being installed is shown in its row
        return {"failed": str(error)}
    return timed(command, log, patience, **more)


def _facts(experiment: Experiment, answers: list[dict[str, Any]], loop: list[dict[str, Any]]) -> dict[str, Any]:
    """What is kept of a contender: seconds of every run, the most memory, last scores, distance from the loop."""
    last = answers[-1]
    if "failed" in last:
        return last
    facts: dict[str, Any] = {
        "seconds": [answer["seconds"] for answer in answers],
        "memory": max(answer["memory"] for answer in answers),
        "versions": last.get("versions", {}),
        "scores": {method: rows[-1][1] for method, rows in last["scores"].items()},
    }
    facts["median"] = float(np.median(facts["seconds"]))
    if "evaluation_share" in last:
        facts["evaluation_share"] = float(np.median([answer["evaluation_share"] for answer in answers]))
    if "failed" in loop[-1]:
        return facts
    theirs = {method: rows[-1][1] for method, rows in loop[-1]["scores"].items()}
    if set(theirs) != set(facts["scores"]):
        return {"failed": f"not the same work: it has scores of {', '.join(facts['scores']) or 'no method'}"}
    gaps = [abs(a - b) for m, scores in facts["scores"].items() for a, b in zip(scores, theirs[m], strict=True)]
    facts["accuracy_off"] = max(gaps)
    facts["difference"] = _difference(experiment, last.get("weights"), loop[-1].get("weights"))
    allowed = LARGEST_OFF_RANDOM if experiment.augments else LARGEST_OFF
    if not facts["accuracy_off"] <= allowed:
        return {"failed": f"not the same work: accuracies are off by {facts['accuracy_off']:.3f}"}
    return facts


def _difference(experiment: Experiment, mine: Any, loop: Any) -> float | None:
    """How far the weights are from the loop's, over the way that the loop's went; None where batches are random."""
    if not mine or not loop or experiment.augments:
        return None
    first = {n: t.detach().numpy() for n, t in first_network(experiment).named_parameters()}
    shared = [n for n in mine if n in loop and n.split(":", 1)[1] in first]
    apart = sum(float(((mine[n] - loop[n]) ** 2).sum()) for n in shared)
    way = sum(float(((loop[n] - first[n.split(":", 1)[1]]) ** 2).sum()) for n in shared)
    return float((apart / way) ** 0.5) if shared else None


def lines(found: dict[str, Any]) -> list[str]:
    """The table of one experiment, and whether every framework is as much slower as was asked for."""
    ours = found["contenders"][OURS]
    shown = [
        "| | seconds, start to table | times FedTempo's | peak memory | last accuracy | off the loop's weights by |",
        "|---|---|---|---|---|---|",
    ]
    shown += [_row(who, facts, ours) for who, facts in found["contenders"].items()]
    if "evaluation_share" in ours:
        shown += ["", f"Scoring takes {ours['evaluation_share']:.0%} of the time of FedTempo's rounds."]
    others = {w: f["median"] for w, f in found["contenders"].items() if w not in (OURS, LOOP) and "median" in f}
    if others and "median" in ours:
        nearest = min(others, key=lambda who: others[who])
        times = others[nearest] / ours["median"]
        verdict = "reached" if times >= LEAST_TIMES else "not reached"
        shown += ["", f"The fastest other framework is {nearest}, at {times:.2f} times. Our target: at least "]
        shown[-1] += f"{LEAST_TIMES:g} times: {verdict}."
    return shown


def _row(who: str, facts: dict[str, Any], ours: dict[str, Any]) -> str:
    if "stopped_after" in facts:
        bound = f"more than {facts['stopped_after'] / ours['median']:.1f}" if "median" in ours else "-"
        return f"| {who} | {facts['failed']} | {bound} | - | - | - |"
    if "failed" in facts:
        return f"| {who} | failed: {' '.join(facts['failed'].replace('|', '/').split())} | - | - | - | - |"
    times = f"{facts['median'] / ours['median']:.2f}" if "median" in ours else "-"
    runs = f"{facts['median']:.1f}" + (f" ({len(facts['seconds'])} runs)" if len(facts["seconds"]) > 1 else "")
    scores = ", ".join("/".join(f"{score:.3f}" for score in values) for values in facts["scores"].values())
    off = facts.get("difference")
    weights = "-" if off is None else f"{off:.0e}"
    return f"| {who} | {runs} | {times} | {facts['memory'] / 2**20:.0f} MB | {scores} | {weights} |"


def keep(kind: str, results: dict[str, Any], write_page: bool) -> None:
    """Put these experiments in place of their earlier results, in the JSON and, when asked, on the page."""
    report.RESULTS.mkdir(exist_ok=True)
    place = report.RESULTS / f"{kind}.json"
    known = json.loads(place.read_text()) if place.exists() else {}
    known = dict(sorted({**known, **results}.items()))
    place.write_text(json.dumps(known, indent=1) + "\n")
    if write_page:
        page = PAGES[kind]
        before, _, rest = page.read_text().partition(START)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{START}\n" + "\n".join(_page(known)) + f"\n{END}{after}")


def _page(known: dict[str, Any]) -> list[str]:
    text: list[str] = []
    for found in known.values():
        facts = found["about"]
        text += ["", f"### {found['title']}", "", f"On {facts['date']}, on {facts['machine']} ({facts['load']}), with "]
        text[-1] += f"Python {facts['python']} and torch {facts['torch']}."
        text += ["", *lines(found)]
    return text[1:]

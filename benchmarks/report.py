"""What a benchmark prints and keeps: tables, JSON, and the page in the documentation."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

OWN_MODULE_TARGET = 1.05
"""A module with a forward of its own may take so many times as long as the same network as `nn.Sequential`."""
RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
START, END = "<!-- measured: begin -->", "<!-- measured: end -->"
LIMITS = {"W1": 0.9, "W2": 0.6, "W3": 0.04, "W4": 0.6}
"""Of the two-process loop's time, at most."""
FLOORS = {"W1": 1.35, "W2": 1.15, "W4": 1.15}
"""Of the time of the products alone, both in one process, at most."""


def about() -> dict[str, str]:
    """When, with what, on what: no more of the machine than its size."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GB of memory",
        "load": f"{os.getloadavg()[1]:.1f} processes waiting in the five minutes before",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def show(name: str, found: dict[str, Any]) -> None:
    """One workload on the terminal."""
    print("\n".join(_lines(name, found)), flush=True)


def keep(results: dict[str, Any], complete: bool) -> None:
    """Write the JSON; a complete run also renews the measured part of the page."""
    RESULTS.mkdir(exist_ok=True)
    kind = "bench" if complete else "bench-part"
    (RESULTS / f"{kind}-{results['about']['date']}.json").write_text(json.dumps(results, indent=1) + "\n")
    if complete:
        write_page("\n".join(page(results)))


def keep_own(results: dict[str, Any]) -> None:
    """Write the JSON of own modules and of the ablation."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"bench-own-{results['about']['date']}.json").write_text(json.dumps(results, indent=1) + "\n")


def write_page(text: str, start: str = START, end: str = END) -> None:
    """Put the text between two marks of the page."""
    before, _, rest = PAGE.read_text().partition(start)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{start}\n{text}\n{end}{after}")


def page(results: dict[str, Any]) -> list[str]:
    """The measured part of the page."""
    facts = results["about"]
    lines = [
        f"Measured on {facts['date']} on {facts['machine']} ({facts['load']}), with Python {facts['python']}, "
        f"torch {facts['torch']} and numpy {facts['numpy']}, one thread per process.",
    ]
    for name, found in results["workloads"].items():
        lines += ["", f"### {found['title']}", "", *_lines(name, found)]
    if "growth" in results:
        early, late = results["growth"]["memory"]
        lines += ["", "### Memory over 1,000 rounds of W3", ""]
        lines += [
            f"{early / 2**20:.0f} MB after 50 rounds, {late / 2**20:.0f} MB after 1,000 ({late / early - 1:+.1%})."
        ]
    return lines


def _lines(name: str, found: dict[str, Any]) -> list[str]:
    lines = ["| | seconds per round | of the two-process loop | of its processor time |", "|---|---|---|---|"]
    for contender, seconds in found["seconds"].items():
        quotient = found["ratios"].get(contender)
        shown = f"{quotient['median']:.3f} | {quotient['processor_time']:.3f}" if quotient else "1 | 1"
        lines.append(f"| {contender} | {seconds['median']:.4f} | {shown} |")
    if "own" in found:
        reached = found["own"]["median"]
        verdict = "reached" if reached <= OWN_MODULE_TARGET else "not reached"
        lines += ["", f"A module with a forward of its own takes {reached:.3f} times as long as the same network as "]
        lines[-1] += f"`nn.Sequential`. Our target: at most {OWN_MODULE_TARGET}: {verdict}."
    for contender, quotient in found.get("recording", {}).items():
        lines += ["", f"{contender}: {quotient['median']:.3f} times as long without recorded steps."]
    if name in LIMITS:
        reached = found["ratios"]["FedTempo"]["median"]
        verdict = "reached" if reached <= LIMITS[name] else "not reached"
        lines += ["", f"Our target: at most {LIMITS[name]} of the two-process loop. Got {reached:.3f}: {verdict}."]
    if "floor" in found:
        reached = found["floor"]["median"]
        verdict = "reached" if reached <= FLOORS[name] else "not reached"
        lines += [
            "",
            f"Our target: in one process at most {FLOORS[name]} times the products alone (matrix products and ",
        ]
        lines[-1] += f"convolutions of the same shapes, nothing between them). Got {reached:.3f}: {verdict}."
    return [*lines, *_extra(found)]


def _extra(found: dict[str, Any]) -> list[str]:
    lines = []
    if "few" in found:
        million = found["few"]
        lines += [
            "",
            f"A million clients take {million['ratio']['median']:.2f} times as long a round as 10,000 do, and ",
        ]
        lines[-1] += f"{million['opening']:.2f} s to open."
    if "profile" in found:
        shares = ", ".join(f"{activity} {share:.0%}" for activity, share in found["profile"].items() if share >= 0.005)
        lines += ["", f"Where the time goes in one process: {shares}."]
    if "algorithms" in found:
        shares = ", ".join(f"{algorithm} {r['median']:.2f}" for algorithm, r in found["algorithms"].items())
        lines += ["", f"Time per local step over FedAvg's: {shares}."]
    if "store" in found:
        lines += ["", f"With every round committed to disk: {found['store']['ratio']['median']:.3f} times as long."]
    for contender, facts in found.get("alone", {}).items():
        if "failed" not in facts:
            lines += ["", f"{contender}: first round done {facts['first_round']:.1f} s after the process started, "]
            lines[-1] += f"at most {facts['peak_memory'] / 2**20:.0f} MB (shared pages counted once)."
    return lines

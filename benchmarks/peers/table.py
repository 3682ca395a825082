"""What the comparison prints and keeps: a table per workload, JSON, and a page in the documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.report import END, RESULTS, START

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks-peers.md"
LEAST = {"W1": 1.5, "W2": 2.0, "W3": 25.0, "W4": 2.0}
"""How many times FedTempo's time every framework is to take."""
OURS = "FedTempo"
LOOP = "hand-written, two processes"


def lines(name: str, found: dict[str, Any]) -> list[str]:
    """A workload's table, and whether every other framework is as much slower as our target says."""
    shown = [
        "| | seconds per round | times FedTempo's (quartiles) | off the loop's weights by | runs as |",
        "|---|---|---|---|---|",
    ]
    shown += [_row(contender, facts) for contender, facts in found["contenders"].items()]
    verdict = _verdict(name, found["contenders"])
    return [*shown, "", verdict] if verdict else shown


def _row(contender: str, facts: dict[str, Any]) -> str:
    if "failed" in facts:
        reason = " ".join(facts["failed"].replace("|", "/").split())
        return f"| {contender} | - | - | - | failed: {reason} |"
    ratio = facts.get("ratio")
    quotient = (
        f"{ratio['median']:.2f} ({ratio['lower_quartile']:.2f} to {ratio['upper_quartile']:.2f})" if ratio else "1"
    )
    seconds = f"{facts['median']:.4f} ({len(facts['wall'])} rounds)"
    off = f"{facts['difference']:.0e}" if "difference" in facts else "-"
    return f"| {contender} | {seconds} | {quotient} | {off} | {facts['configuration']} |"


def _verdict(name: str, contenders: dict[str, Any]) -> str | None:
    ratios = {c: f["ratio"]["median"] for c, f in contenders.items() if c not in (OURS, LOOP) and "ratio" in f}
    if not ratios:
        return None
    nearest = min(ratios, key=lambda c: ratios[c])
    target, said = LEAST.get(name), f"The fastest other framework is {nearest}, at {ratios[nearest]:.2f} times"
    if target is None:
        return f"{said}."
    verdict = "reached" if ratios[nearest] >= target else "not reached"
    return f"{said}. Our target: at least {target:g} times. {verdict.capitalize()}."


def page(results: dict[str, Any]) -> list[str]:
    """The measured part of the page."""
    text = ["Versions: " + "; ".join(_versions(results)) + "."]
    for name, found in results.items():
        facts = found["about"]
        text += [
            "",
            f"### {found['title']}",
            "",
            f"On {facts['date']}, on {facts['machine']} ({facts['load']}), with Python {facts['python']}. FedTempo "
            f"{facts['fedtempo']} and the loop used torch {facts['torch']} and numpy {facts['numpy']}.",
            "",
            *lines(name, found),
        ]
    return text


def _versions(results: dict[str, Any]) -> list[str]:
    seen: dict[str, None] = {}
    for found in results.values():
        for facts in found["contenders"].values():
            if "versions" in facts:
                seen[", ".join(f"{package} {version}" for package, version in facts["versions"].items())] = None
    return list(seen)


def keep(name: str, found: dict[str, Any], folder: Path = RESULTS, document: Path = PAGE) -> None:
    """Put one workload's results in place of its earlier ones, in the JSON and on the page."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "peers.json"
    results = json.loads(place.read_text()) if place.exists() else {}
    results = dict(sorted({**results, name: found}.items()))
    place.write_text(json.dumps(results, indent=1) + "\n")
    before, _, rest = document.read_text().partition(START)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{START}\n" + "\n".join(page(results)) + f"\n{END}{after}")

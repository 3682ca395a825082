"""The demo for people: the table, a sentence for each row, and the chart of the trade-off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedtempo.cli.demo_runs import BETAS, BY_BETA, DIFFERENT, FINE_TUNING, SIMILAR, TUNED, DemoRun, by_label
from fedtempo.evaluation.over_seeds import Estimate, over_seeds
from fedtempo.papers.framework.svg import Axes, Series, draw
from fedtempo.report import Grid, Lines, Section, report, result_table, write_page
from fedtempo.study import Decision, Finding, decide_pairs
from fedtempo.support.files import write_atomically
from fedtempo.support.json_text import JsonTable
from fedtempo.support.table import ResultTable

MARGIN = 0.01
HEIGHT, WIDTH = 9, 34
"""Of a text chart, in lines and letters."""
KINDS = {DIFFERENT: "very different users", SIMILAR: "similar users"}
IDEAS = {
    "FedSGD": "one step a round, so clients never drift apart",
    "FedDecay 0.4": "local steps shrink by 0.4 each, close to FedSGD",
    "FedDecay 0.8": "local steps shrink by 0.8 each, close to FedAvg",
    "FedNAR": "gradient and weight decay are clipped together",
    "decaying K": "fewer local steps as training goes on",
    "PFLEGO": "heads stay with their users, the body is shared, and a new user starts with a fresh head",
    "local only": "no federation at all",
}
"""What each contestant does differently from FedAvg."""


@dataclass(frozen=True)
class DemoFindings:
    """What the demo shows: everything is computed from its runs."""

    runs: Sequence[DemoRun]
    rounds: int

    @property
    def seeds(self) -> int:
        """How many seeds each contestant has."""
        return len({one.seed for one in self.runs})

    def table(self) -> ResultTable:
        """All contestants on very different users."""
        shown = [one for one in self.runs if one.alpha == DIFFERENT]
        return result_table([one.run for one in shown], [one.label for one in shown])

    def decisions(self) -> list[Decision]:
        """Each contestant against FedAvg, existing and new users after fine-tuning, on very different users."""
        runs = {label: [one.run for one in own] for label, own in by_label(self.runs, DIFFERENT).items()}
        claims = [(label, "FedAvg", users) for label in runs if label != "FedAvg" for users in ("existing", "new")]
        return decide_pairs(runs, claims, MARGIN)

    def sentences(self) -> list[str]:
        """One for each contestant: what it does, and what these runs say about it."""
        lines = [f"{label}: {idea}. Against FedAvg, in points: {said}." for label, idea, said in self.answers()]
        return [*lines, self._saved()]

    def answers(self) -> list[tuple[str, str, str]]:
        """For each contestant: its label, what it does, and how it stands against FedAvg."""
        found: dict[str, list[Decision]] = {}
        for one in self.decisions():
            found.setdefault(one.label, []).append(one)
        return [(label, IDEAS[label], _against(own, self.seeds)) for label, own in found.items()]

    def gains(self, alpha: float, when: str) -> list[Estimate]:
        """By beta: existing users' accuracy `before` or `after` fine-tuning, or the `gain`, over seeds."""
        runs = by_label(self.runs, alpha)
        return [over_seeds([_score(one, when) for one in runs[BY_BETA[beta]]]) for beta in BETAS]

    def trade_off(self) -> list[str]:
        """What the chart shows, in a sentence for each kind of users."""
        lines = []
        for alpha, kind in KINDS.items():
            gains = self.gains(alpha, "gain")
            words = ", ".join(f"{_points(gain)} at beta {beta:g}" for beta, gain in zip(BETAS, gains, strict=True))
            lines.append(f"{kind} (alpha {alpha:g}): fine-tuning changes accuracy by {words} (points)")
        return lines

    def charts(self) -> list[str]:
        """Both kinds of users side by side, as text."""
        panels = [
            _chart(f"{kind} (alpha {alpha:g})", self.gains(alpha, "before"), self.gains(alpha, "after"), self._ends())
            for alpha, kind in KINDS.items()
        ]
        return ["   ".join(line.ljust(WIDTH) for line in lines).rstrip() for lines in zip(*panels, strict=True)]

    def svg(self) -> str:
        """The same chart as SVG."""
        series = [
            Series(
                f"{kind}, {when}",
                BETAS,
                [one.value for one in self.gains(alpha, when)],
                [one.low for one in self.gains(alpha, when)],
                [one.high for one in self.gains(alpha, when)],
                marks=True,
            )
            for alpha, kind in KINDS.items()
            for when in ("before", "after")
        ]
        return draw(series, Axes("Before and after fine-tuning, by beta", "beta (0: FedSGD, 1: FedAvg)", "accuracy"))

    def write(self, out: Path, command: str) -> Path:
        """Write `report.html` and `trade-off.svg`; returns where the page is."""
        write_atomically(out / "trade-off.svg", self.svg(), "out")
        curves = {
            f"{kind.removesuffix(' users').removeprefix('very ')}, {when}": list(
                zip(BETAS, [one.value for one in self.gains(alpha, when)], strict=True)
            )
            for alpha, kind in KINDS.items()
            for when in ("before", "after")
        }
        rows = [
            [label, *(f"{name} {value:g}" for name, value in tuned.items())]
            for label, tuned in TUNED[DIFFERENT].items()
        ]
        widest = max(map(len, rows))
        sections = [
            Section(
                "Before and after fine-tuning, by beta",
                ". ".join(self.trade_off()) + ".",
                figure=Lines(curves, "beta (0 is FedSGD, 1 is FedAvg)", "accuracy of existing users"),
            ),
            Section(
                "What it means",
                self._saved(),
                table=Grid(["contestant", "what it does", "against FedAvg, in points"], self.answers()),
            ),
            Section(
                f"Tuned rates; everybody fine-tunes at {FINE_TUNING:g}",
                table=Grid(
                    ["contestant", "rate", "second rate"][:widest], [row + [""] * (widest - len(row)) for row in rows]
                ),
            ),
        ]
        title = f"What clients do between two aggregations: digits, {self.rounds} rounds, {self.seeds} seeds"
        pages = [one.run for one in self.runs if one.alpha == DIFFERENT]
        return write_page(out / "report.html", report(pages, title=title, command=command, sections=sections), "out")

    def as_dict(self) -> JsonTable:
        """The table, the chart's numbers and the sentences as plain data."""
        return {
            "rounds": self.rounds,
            "seeds": self.seeds,
            "table": self.table().records(),
            "tuned": {f"{alpha:g}": tuned for alpha, tuned in TUNED.items()},
            "chart": {
                f"{alpha:g}": {
                    "beta": list(BETAS),
                    **{when: [one.value for one in self.gains(alpha, when)] for when in ("before", "after")},
                }
                for alpha in KINDS
            },
            "sentences": [*self.sentences(), *self.trade_off()],
        }

    def _ends(self) -> tuple[float, float]:
        values = [one.value for alpha in KINDS for when in ("before", "after") for one in self.gains(alpha, when)]
        return min(values), max(values)

    def _saved(self) -> str:
        """What fewer local steps save, which is exact."""
        runs = by_label(self.runs, DIFFERENT)
        steps = {
            label: fmean(one.run.costs.steps for one in runs[label]) for label in ("FedAvg", "decaying K", "FedSGD")
        }
        less, least = (1 - steps[label] / steps["FedAvg"] for label in ("decaying K", "FedSGD"))
        fewer = f"Decaying K takes {less:.0%} fewer local steps, FedSGD {least:.0%} fewer."
        many = f"an answer must survive the correction for {2 * len(IDEAS)} comparisons"
        return f"The others are compared with FedAvg; {many}. {fewer}"


def _score(one: DemoRun, when: str) -> float:
    groups, metric = one.run.judged.groups(), one.run.judged.metric
    before, after = (groups[f"existing_{part}"].summary(metric)["mean"] for part in ("before", "after"))
    return {"before": before, "after": after, "gain": after - before}[when]


def _points(gain: Estimate) -> str:
    half = "" if gain.low != gain.low else f" ±{100 * (gain.high - gain.value):.1f}"
    return f"{100 * gain.value:+.1f}{half}"


def _against(decisions: Sequence[Decision], seeds: int) -> str:
    """Both kinds of users against FedAvg. A lead is called one only where the intervals and the correction agree."""
    parts = []
    for one in decisions:
        words = {
            Finding.BETTER: "better",
            Finding.WORSE: "worse",
            Finding.SAME: "no difference",
        }.get(one.finding, "these seeds can't tell")
        # As many seeds as there are would do: then it is the users who disagree.
        more = (
            "" if one.needed is None else f", about {one.needed} would" if one.needed > seeds else ", more users would"
        )
        parts.append(f"{one.users} users: {words}{more} ({_points(one.seeds)})")
    return "; ".join(parts)


def _chart(title: str, before: Sequence[Estimate], after: Sequence[Estimate], ends: tuple[float, float]) -> list[str]:
    """A panel: beta across, accuracy up, `o` before and `x` after fine-tuning, `*` where both are."""
    low, high = ends
    step = (high - low) / (HEIGHT - 1) or 1.0
    columns = [round((WIDTH - 10) * place / (len(BETAS) - 1)) for place in range(len(BETAS))]
    grid = [[" "] * (WIDTH - 9) for _ in range(HEIGHT)]
    for letter, line in (("o", before), ("x", after)):
        for column, one in zip(columns, line, strict=True):
            row = round((high - one.value) / step)
            grid[row][column] = letter if grid[row][column] == " " else "*"
    lines = [f"{high - row * step:.3f} |".removeprefix("0") + "".join(cells) for row, cells in enumerate(grid)]
    feet = [" "] * (WIDTH - 3)
    for column, beta in zip(columns, BETAS, strict=True):
        for offset, letter in enumerate(f"{beta:g}".removeprefix("0") or "0"):
            feet[column + 6 + offset] = letter
    return [title, *lines, "".join(feet)]

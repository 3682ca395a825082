"""The report in a real browser: opened, looked at, used, and attacked through every name that it shows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest

import fedtempo as ft
from fedtempo.comparison import Comparison, Line
from fedtempo.evaluation.over_seeds import half_width
from fedtempo.evaluation.protocol import Scores, UserScores
from fedtempo.federation.costs import Costs
from fedtempo.report import Bars, Grid, Lines, Rates, Section, plan_of, report, write_page
from fedtempo.study.differences import differences_section
from fedtempo.training.prepare import prepare
from fedtempo.training.round_report import RoundReport
from tests.e2e.browser.conftest import Browser

HOSTILE = "</script><script>document.title='owned'</script>"
FORMULA = '=HYPERLINK("http://example.invalid","x")'
IMAGE = "<img src=x onerror=\"document.title='owned'\">"


def one_run(label: str, seed: int, beta: float, **more: Any) -> ft.Run:
    rng = np.random.default_rng(seed)
    clients = [(rng.standard_normal((n, 6)), rng.integers(0, 4, n)) for n in (17, 12, 15, 16, 9, 10, 20, 14)]
    names = [f"{IMAGE}{index}" for index in range(8)]
    data = ft.data.FederatedData.from_clients(clients, validation=0.2, test=0.3, new_clients=2, names=names, seed=seed)
    backbone = ft.algorithms.feddecay(lr=0.2, beta=beta, steps=4)
    result = ft.run(
        model=ft.models.mlp(6, [8], 4),
        data=data,
        algorithm=ft.algorithms.fednar(backbone, weight_decay=0.01, max_norm=0.5),
        rounds=12,
        cohort=4,
        seed=seed,
        evaluation=ft.Evaluation(every=2),
        faults=ft.Faults(nan=0.2),
        **more,
    )
    return ft.Run.of(result, label, command=f"fedtempo run {HOSTILE}")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [one_run(label, seed, beta) for label, beta in ((HOSTILE, 0.5), (FORMULA, 1.0)) for seed in (0, 1)]
    sections = [
        Section(
            "Verdicts", f"All hold. {IMAGE}", Grid(["claim", "ours"], [[HOSTILE, 0.5]]), Bars({IMAGE: 0.7, "lr": 0.1})
        ),
        Section("A figure", figure=Lines({HOSTILE: [(0, 1.0), (1, 2.0)]}, "x", "y")),
    ]
    text = report(runs, title=f"Title {HOSTILE}", sections=sections)
    return write_page(tmp_path_factory.mktemp("report") / "report.html", text)


@pytest.fixture
def opened(browser: Browser, page: Path) -> Iterator[Browser]:
    browser.look(1280)
    browser.open(page)
    yield browser
    assert browser.errors() == []
    assert browser.requests() == []
    assert browser.js("return document.title") == f"Title {HOSTILE}"


def label_of(browser: Browser, figure: str) -> str:
    return str(browser.one(f"#{figure} svg.chart").get_attribute("aria-label"))


def lines_in(browser: Browser, figure: str) -> int:
    return len(browser.all(f"#{figure} path.line"))


def axis_of(browser: Browser, figure: str) -> list[str]:
    texts = browser.js(f"return [...document.querySelectorAll('#{figure} svg.chart .tick')].map((t) => t.textContent)")
    return list(texts)


def test_every_figure_is_drawn_and_told_in_words(opened: Browser) -> None:
    figures = {"curves", "tuning", "users", "cost", "loss", "refused", "clipping", "data", "schedules"}
    assert {section.get_attribute("id") for section in opened.all("section.figure")} == figures
    told = [svg.get_attribute("aria-label") for svg in opened.all("svg.chart")]
    assert len(told) >= 14
    assert all(text and len(text) > 20 for text in told)
    assert [heading.text for heading in opened.all("section.text h2")][:2] == ["Verdicts", "A figure"]
    assert opened.one("#what dl").text
    assert HOSTILE in opened.one("pre.command").text
    assert opened.all("script[src], link[href^=http], img") == []


def test_the_metric_is_switched(opened: Browser) -> None:
    assert "accuracy" in label_of(opened, "curves")
    opened.js(
        "const s = arguments[0]; s.value = 'loss'; s.dispatchEvent(new Event('change'))", opened.one("#choose-metric")
    )
    assert "loss, mean over users" in label_of(opened, "curves")
    assert opened.one("#table-title").text.startswith("Loss")
    opened.js(
        "const s = arguments[0]; s.value = 'worst'; s.dispatchEvent(new Event('change'))",
        opened.one("#choose-statistic"),
    )
    assert "loss, worst over users" in label_of(opened, "curves")


def test_users_before_and_after_and_seeds_are_switched(opened: Browser) -> None:
    opened.click("#controls [data-value=new]")
    opened.click("#controls [data-value=before]")
    assert "new users before fine-tuning" in label_of(opened, "curves")
    assert lines_in(opened, "curves") == 2
    opened.click("#controls [data-value=each]")
    assert lines_in(opened, "curves") == 4
    assert "seed 1" in label_of(opened, "curves")


def test_a_run_is_hidden_and_a_seed_left_out(opened: Browser) -> None:
    rows = len(opened.all("#table tbody tr"))
    opened.click(".chip")
    assert opened.one(".chip").get_attribute("aria-pressed") == "false"
    assert lines_in(opened, "curves") == 1
    assert len(opened.all("#table tbody tr")) == rows - 1
    opened.click(".chip")
    assert lines_in(opened, "curves") == 2
    before = label_of(opened, "loss")
    opened.click("input[data-run='3']")
    assert label_of(opened, "loss") != before


def test_dragging_zooms_and_a_button_goes_back(opened: Browser) -> None:
    from selenium.webdriver import ActionChains

    whole = axis_of(opened, "loss")
    chart = opened.one("#loss svg.chart")
    opened.js("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(opened.driver).move_to_element_with_offset(chart, -100, 0).click_and_hold().move_by_offset(
        120, 5
    ).release().perform()
    assert axis_of(opened, "loss") != whole
    opened.click("#loss .reset")
    assert axis_of(opened, "loss") == whole
    assert not opened.one("#loss .reset").is_displayed()


def test_hovering_and_arrow_keys_tell_the_numbers(opened: Browser) -> None:
    from selenium.webdriver import ActionChains, Keys

    chart = opened.one("#curves svg.chart")
    opened.js("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(opened.driver).move_to_element(chart).perform()
    tip = opened.one("#curves .tip")
    assert "round" in tip.text
    assert HOSTILE in tip.text
    first = tip.text
    chart.send_keys(Keys.ARROW_RIGHT)
    assert opened.one("#curves .tip").text != first
    cells = opened.one("#data svg.chart")
    opened.js("arguments[0].scrollIntoView({block: 'center'})", cells)
    ActionChains(opened.driver).move_to_element(cells).perform()
    assert IMAGE in opened.one("#data .tip").text


def test_the_cost_axis_is_switched(opened: Browser) -> None:
    for value, words in (("steps", "local steps"), ("flops", "FLOPs"), ("seconds", "seconds"), ("bytes", "bytes sent")):
        opened.click(f"#cost [data-value={value}]")
        assert words in label_of(opened, "cost")


def test_a_score_is_drawn_against_the_time_of_devices(browser: Browser, tmp_path: Path) -> None:
    """Where some run has a clock, its time and energy are costs; a run without one has no line there."""
    fleet = ft.devices.constant(seconds_per_step=60.0, joules_per_step=2.0)
    runs = [one_run("timed", 0, 0.5, devices=fleet), one_run("plain", 0, 1.0)]
    browser.open(write_page(tmp_path / "timed.html", report(runs, title="Timed")))
    for value, words in (("time", "time on the clients"), ("energy", "joules")):
        choose = (
            "const s = document.querySelector('#cost select'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('change'))"
        )
        browser.js(choose, value)
        assert words in label_of(browser, "cost")
        assert lines_in(browser, "cost") == 1
    assert browser.errors() == []


@pytest.mark.parametrize(
    ("figure", "name", "rows"),
    [("curves", "curves.csv", 4 * 6 * 4 * 2), ("loss", "rounds.csv", 4 * 12), ("users", "users.csv", 4 * 8)],
)
def test_numbers_are_saved_as_csv(opened: Browser, figure: str, name: str, rows: int) -> None:
    opened.click(f"#{figure} .save")
    saved = opened.downloads / name
    opened.until(saved.exists)
    with saved.open(encoding="utf-8-sig", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == rows
    assert {row["run"] for row in table} == {HOSTILE, "'" + FORMULA}
    assert {row["seed"] for row in table} == {"0", "1"}


def test_phone_print_light_and_dark(opened: Browser) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    assert opened.js(paper) == "rgb(255, 255, 255)"
    opened.look(1280, scheme="dark")
    assert opened.js(paper) == "rgb(18, 21, 24)"
    opened.click("#theme")
    assert opened.js(paper) == "rgb(255, 255, 255)"
    opened.click("#theme")
    opened.look(1280, scheme="dark", medium="print")
    assert opened.js(paper) == "rgb(255, 255, 255)"
    assert not opened.one("#curves .save").is_displayed()
    opened.look(360, 740)
    opened.until(lambda: opened.js("return document.querySelector('#curves svg').viewBox.baseVal.width") < 400)
    assert opened.js("return document.documentElement.scrollWidth") <= 360


def test_a_run_without_rounds_or_scores_has_a_page_too(browser: Browser, tmp_path: Path) -> None:
    data = ft.data.FederatedData.from_clients([(np.ones((4, 3)), np.ones((4, 1))) for _ in range(3)])
    bare = ft.run(
        model=ft.models.softmax_regression(3, 1),
        data=data,
        algorithm=ft.algorithms.fedavg(lr=0.1, steps=2),
        rounds=2,
        loss="regression",
        evaluation=None,
    )
    for name, run in (("bare", ft.Run.of(bare)), ("nothing", ft.Run("nothing yet", [], total=5))):
        browser.open(write_page(tmp_path / f"{name}.html", report([run], title=name)))
        assert browser.errors() == []
        assert "undefined" not in browser.one("body").text
        assert "NaN" not in browser.one("body").text


@pytest.mark.parametrize("figure", ["curves", "tuning", "schedules"])
def test_a_figure_is_saved_as_a_drawing_that_stands_alone(opened: Browser, figure: str) -> None:
    """Its colours are written out, it has the legend, and other people's names are text in it."""
    opened.click(f"#{figure} .picture")
    saved = opened.downloads / f"{figure}.svg"
    opened.until(lambda: saved.exists() and saved.stat().st_size > 0)
    text = saved.read_text()
    drawing = fromstring(text)
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in text and "class=" not in text
    assert any(HOSTILE in (one.text or "") for one in drawing.iter("{http://www.w3.org/2000/svg}text"))
    assert not list(drawing.iter("{http://www.w3.org/2000/svg}script"))


def test_a_figure_is_saved_as_pixels(opened: Browser) -> None:
    width = opened.js("return Math.ceil(document.querySelector('#curves .plot').getBoundingClientRect().width)")
    opened.js("[...document.querySelectorAll('#curves .picture')].at(-1).click()")
    saved = opened.downloads / "curves.png"
    opened.until(lambda: saved.exists() and saved.stat().st_size > 5000)
    header = saved.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert int.from_bytes(header[16:20], "big") == 2 * width


def test_a_link_leads_to_its_figure(browser: Browser, page: Path) -> None:
    browser.look(1280)
    browser.open(f"{page.as_uri()}#loss")
    top = browser.js("return document.getElementById('loss').getBoundingClientRect().top")
    assert browser.js("return window.scrollY") > 0
    assert -5 < top < browser.js("return window.innerHeight")
    assert browser.js("return document.querySelector('#loss .anchor').hash") == "#loss"
    assert browser.js("return document.querySelector('#section-1 .anchor').hash") == "#section-1"


def test_a_printed_page_fits_a4(opened: Browser) -> None:
    """Nothing is wider than the paper between its margins: 210 mm less twice 14 mm are 688 pixels."""
    opened.look(688, scheme="light", medium="print")
    opened.until(lambda: opened.js("return document.querySelector('#curves svg').viewBox.baseVal.width") <= 688)
    assert opened.js("return document.documentElement.scrollWidth") <= 688
    html = "[...document.querySelectorAll('main *:not(svg *)')]"
    assert opened.js(f"return {html}.filter(e => e.getBoundingClientRect().right > 690).map(e => e.outerHTML)") == []


def scored(label: str, seed: int, *accuracies: float) -> ft.Run:
    """A run of one round with these scores, the same before and after fine-tuning."""
    values = {"accuracy": np.array(accuracies), "loss": 1 - np.array(accuracies)}
    users = UserScores(np.arange(len(accuracies)), np.ones(len(accuracies), dtype=np.int64), values)
    report = RoundReport(0, 0.5, [0], Costs(), Costs(), 1.0, test=Scores("test", users, users))
    return ft.Run(label, [report], seed=seed, total=1)


def test_plus_minus_is_half_the_interval_and_bold_is_what_cannot_be_told_from_the_best(
    browser: Browser, tmp_path: Path
) -> None:
    """ "close" is 0.1, 0.3 and 0.2 behind the best, which three seeds cannot tell; "apart" is 0.1 behind, always."""
    means = {"best": (0.9, 0.9, 0.9), "close": (0.8, 0.6, 0.7), "apart": (0.80, 0.81, 0.79)}
    runs = [scored(label, seed, *[value] * 8) for label, each in means.items() for seed, value in enumerate(each)]
    browser.open(write_page(tmp_path / "bold.html", report(runs, title="Bold")))
    rows = {row.text.split("\n")[0].split()[0]: row for row in browser.all("#table tbody tr")}
    for label, values in means.items():
        after = rows[label].find_elements("css selector", "td")[1]
        assert after.text.split()[1] == f"±{half_width(values):.3f}"
        assert ("best" in after.get_attribute("class").split()) == (label != "apart")
    title = browser.one("#table-title").text
    assert "mean ± half of the 95 % interval over seeds; bold: what cannot be told from the best" in title
    assert "worst of 8" in browser.one("#table thead").text and "worst of 8" in browser.one("#tiles").text
    assert browser.errors() == []


def test_a_schedule_is_drawn_round_by_round_and_nothing_joins_two_rounds(browser: Browser, tmp_path: Path) -> None:
    """FedDecay's rate falls by 0.6 from step to step and starts afresh: between two rounds there is no line."""
    data = ft.data.FederatedData.from_clients([(np.ones((4, 3)), np.zeros(4, dtype=np.int64)) for _ in range(3)])
    algorithm = ft.algorithms.feddecay(lr=0.1, beta=0.6, steps=5)
    prepared = prepare(model=ft.models.softmax_regression(3, 2), data=data, algorithm=algorithm, rounds=40)
    drawn = Section("Rates", figure=Rates("FedDecay", plan_of(prepared, every_round=True)))
    browser.open(write_page(tmp_path / "schedule.html", report([], title="Schedule", sections=[drawn])))
    pieces = [path.get_attribute("d").split("M")[1:] for path in browser.all(".inner-plot:last-child path.line")][-1]
    assert len(pieces) == 10
    for piece in pieces:
        heights = [float(point.split(",")[1]) for point in piece.split("L")]
        assert len(heights) == 5 and heights == sorted(heights)
    ticks = [tick.text for tick in browser.all("#section-1 > .plot > .inner-plot .tick[text-anchor=middle]")]
    assert len(ticks) >= 5 and {int(tick) for tick in ticks} <= set(range(1, 12))
    assert [heading.text for heading in browser.all("h2") if heading.is_displayed()] == ["Rates"]
    assert browser.errors() == []


def test_differences_are_drawn_as_they_are_decided(browser: Browser, tmp_path: Path) -> None:
    """Three contestants against a baseline on four seeds: one is ahead, one is the same, of one nobody knows."""
    means = {"base": (0.70, 0.71, 0.69, 0.70), "ahead": (0.80, 0.81, 0.79, 0.805), "same": (0.70, 0.711, 0.69, 0.70)}
    means["open"] = (0.75, 0.66, 0.74, 0.69)
    runs = {
        label: [
            replace(scored(label, seed, *(value + 0.001 * user for user in range(12))), identity={"data": "d"})
            for seed, value in enumerate(each)
        ]
        for label, each in means.items()
    }
    rows = [
        Line(label, [0, 1, 2, 3], {}, {}, {"existing_after": {}} if label != "base" else {}, {}, None) for label in runs
    ]
    comparison = Comparison("accuracy", "test", "base", None, rows, [])
    section = differences_section(comparison, runs)
    assert section is not None
    page = report([run for own in runs.values() for run in own], title="Differences", sections=[section])
    browser.open(write_page(tmp_path / "differences.html", page))
    drawn = browser.js(
        """return [...document.querySelectorAll("#section-1 g.difference")].map((row) => {
            const line = row.querySelector("line"), place = row.querySelector("path").getAttribute("transform");
            return [row.querySelector("title").textContent, +line.getAttribute("x1"), +line.getAttribute("x2"),
                    +place.match(/translate\\(([^,]+)/)[1]];
        })"""
    )
    answers = ["better", "equal to a point", "not decided; about "]
    zero = browser.js("return +document.querySelector('#section-1 line.axis').getAttribute('x1')")
    assert len(drawn) == 3
    unit = (drawn[0][3] - zero) / (sum(means["ahead"]) - sum(means["base"])) * 4  # pixels, from the largest difference
    for (title, low, high, middle), answer, label in zip(drawn, answers, ("ahead", "same", "open"), strict=True):
        assert title.startswith(f"{label}, existing: ") and answer in title
        gaps = [ours - theirs for ours, theirs in zip(means[label], means["base"], strict=True)]
        assert middle == pytest.approx((low + high) / 2, abs=0.2)
        half = half_width(gaps)
        assert (low > zero) == (sum(gaps) / 4 > half)
        assert (high - low) / 2 == pytest.approx(half * unit, rel=0.05)
        assert middle - zero == pytest.approx(unit * sum(gaps) / 4, abs=0.5)
    for scheme in ("light", "dark"):
        browser.look(390, 800, scheme=scheme)
        assert browser.js("return document.documentElement.scrollWidth") <= 390
    browser.look(1280)
    assert browser.errors() == []


def test_bands_are_intervals_and_those_of_many_are_left_out(browser: Browser, tmp_path: Path) -> None:
    """Losses 0.5 in every run but one: a band is as high as twice the half of the interval, on the loss's own axis."""
    losses = {"a": (0.4, 0.5, 0.6), "b": (0.5, 0.5, 0.5), "c": (0.5, 0.5, 0.5), "d": (0.5, 0.5, 0.5)}
    runs = []
    for label, each in losses.items():
        for seed, loss in enumerate(each):
            reports = [RoundReport(number, loss, [0], Costs(), Costs(), 1.0) for number in range(3)]
            runs.append(ft.Run(label, reports, seed=seed, total=3))
    browser.open(write_page(tmp_path / "bands.html", report(runs[:9], title="Bands")))
    (band,) = browser.all("#loss path.band")
    heights = {float(point.split(",")[1]) for point in re.findall(r"[\d.]+,[\d.-]+", band.get_attribute("d"))}
    ticks = browser.all("#loss .tick[text-anchor=end]")
    grid = [(float(tick.text), float(tick.get_attribute("y"))) for tick in ticks]
    scale = (grid[0][1] - grid[-1][1]) / (grid[-1][0] - grid[0][0])
    assert max(heights) - min(heights) == pytest.approx(2 * half_width(losses["a"]) * scale, rel=0.02)
    many = [replace(run, label=f"{run.label}{place}") for place in range(4) for run in runs[:3]]
    browser.open(write_page(tmp_path / "many.html", report(many, title="Many")))
    assert browser.all("#loss path.band") == [] and "at most 3 are in sight" in browser.one("#loss .sub").text
    browser.click(".chip")
    assert len(browser.all("#loss path.band")) == 3
    assert browser.errors() == []


def test_many_runs_stand_in_a_folded_matrix_and_are_not_printed(browser: Browser, tmp_path: Path) -> None:
    runs = [
        replace(scored(label, seed, 0.5), digest=f"{place}{seed}" * 32)
        for place, label in enumerate((IMAGE, "b", "c"))
        for seed in range(4)
    ]
    browser.open(write_page(tmp_path / "runs.html", report(runs, title="Runs")))
    assert not browser.one("details.runs table").is_displayed()
    browser.click("details.runs summary")
    rows = [row.text.split() for row in browser.all("details.runs tbody tr")]
    assert len(rows) == 3 and rows[1] == ["b", "10101010", "11111111", "12121212", "13131313"]
    browser.click("input[data-run='0']")
    browser.look(1280, medium="print")
    assert not browser.one("details.runs").is_displayed()
    browser.look(1280)
    assert browser.errors() == [] and browser.js("return document.title") == "Runs"

"""The papers' tables and figures as values, run by `fedtempo reproduce`.

How to add one. A paper has a folder here (`feddecay/`, `fednar/`, ...), whose `__init__` has a tuple `REPRODUCTIONS`;
`REPRODUCTIONS` below lists them all. A `Reproduction` is

* `name`, `paper` (a key of `reproduction.PAPERS`), `source` ("Table 3"), `title`;
* `scales`: `{"smoke": sized(seeds=1, minutes=0.1, rounds=2, ...), "small": ..., "medium": ..., "paper": ...}`. The
  keywords are yours; the runs read them as `scale["rounds"]`. Smoke takes seconds (every test run performs it), small
  at most four minutes on two cores, medium at most an hour, paper is the paper's own setting. Medium has a `tuning`
  (which labels, which candidates, by which validation score) and a `settling` (when a run counts as trained); its runs
  read what was chosen as `scale.rate(contestant, default)`;
* `runs(scale, seed)`: the labelled runs, `Training(label, Data(...), Model("mlp", {...}), algorithm, settings,
  measures)` where `settings` are the others of `fedtempo.run` (rounds, cohort, batch_size, `"seed": seed`, evaluation),
  or `Calculation(label, settings, compute)` for a formula. Labels are the same for every seed. Settings must print as
  what they are: their hash (`framework.keys`) says which runs are finished. `Data(..., rows=n)` keeps a sample;
* `measures`, functions from a `Result` to `Measured(values, curves)`: `measures.users`, `costs`, `train_loss`,
  `learning`, `partial(to_target, target=0.8)`, or your own in the paper's file;
* `columns`: which values the table shows, `{"existing_after/mean": score_column("existing users"), ...}`;
  `score_column` for scores of trained models, `Column` for the rest, `exact=True` for counts that the settings
  decide. `derive` adds columns made from several labels' values;
* `reported`: the paper's values, `{label: {column: value}}`;
* `claims`: `Claim("what the paper says", rule, "4.1")` with its section, or `Claim("what we ask", rule)` without one;
  only our questions have verdicts here, `ten_claims` judges the papers'. Rules are those of `claims`: `higher`, `lower`
  (paired over seeds; `by=-0.01` is a margin), `at_least`, `at_most`, `near`, `equal`, `all_of`, `any_of`,
  `at_paper_scale`, or any function from an `Outcome` to a `Verdict`;
* `figures`: `Lines` (a measured curve of each label), `Sweep` (a column against a setting), `Points`;
* `notes`: departures from the paper.

`fedtempo reproduce NAME --scale small --docs docs/results` performs it and puts its section into the paper's page.
"""

from fedtempo.papers import clock, compositions, compressors, control, decaying_k, feddecay, fednar, pflego
from fedtempo.papers.decaying_k.quadratic import figure_1
from fedtempo.papers.framework.reproduction import PAPERS, SCALES, Reproduction
from fedtempo.papers.framework.running import reproduce

_PAPERS = (feddecay, fednar, pflego, decaying_k, compositions, compressors, clock, control)
REPRODUCTIONS: dict[str, Reproduction] = {one.name: one for paper in _PAPERS for one in paper.REPRODUCTIONS}

__all__ = ["PAPERS", "REPRODUCTIONS", "SCALES", "Reproduction", "figure_1", "reproduce"]

"""The fair comparison: everybody is tuned alike on seeds of their own, then judged on fresh ones."""

from fedtempo.study.decisions import Decision, Finding, decide_all, decide_pairs
from fedtempo.study.kept_plan import PLAN
from fedtempo.study.outcome import FairComparison, TunedValues
from fedtempo.study.plan import Budget, FairPlan, make_plan
from fedtempo.study.protocol import compare_fairly, tune_alike
from fedtempo.study.tunable import Tunable, first_values, from_entrants, from_functions, middle_rates

__all__ = [
    "PLAN",
    "Budget",
    "Decision",
    "FairComparison",
    "FairPlan",
    "Finding",
    "Tunable",
    "TunedValues",
    "compare_fairly",
    "decide_all",
    "decide_pairs",
    "first_values",
    "from_entrants",
    "from_functions",
    "make_plan",
    "middle_rates",
    "tune_alike",
]

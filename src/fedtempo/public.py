"""Every public name of FedTempo. `fedtempo` itself hands them out when they are first asked for."""

from fedtempo import algorithms, data, models, params, schedules, tasks, theory, trackers, transforms
from fedtempo.algorithms import Algorithm
from fedtempo.api import compare, run, train
from fedtempo.contracts import check_algorithm, check_backend
from fedtempo.errors import ConfigError, DataError, FedTempoError, ModelError, OutputError, StoreError, TrainingError
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.schedules import Now, Schedule
from fedtempo.server import cohort, robust
from fedtempo.server.admission import Admission
from fedtempo.server.faults import Faults
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport

__all__ = [
    "Admission",
    "Algorithm",
    "ConfigError",
    "DataError",
    "Evaluation",
    "Faults",
    "FedTempoError",
    "ModelError",
    "Now",
    "OutputError",
    "Result",
    "RoundReport",
    "Schedule",
    "StoreError",
    "TrainingError",
    "algorithms",
    "check_algorithm",
    "check_backend",
    "cohort",
    "compare",
    "data",
    "models",
    "params",
    "robust",
    "run",
    "schedules",
    "tasks",
    "theory",
    "trackers",
    "train",
    "transforms",
]

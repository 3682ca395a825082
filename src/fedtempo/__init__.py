"""FedTempo: federated learning that cares about what clients do between two aggregations."""

from fedtempo import algorithms, cohort, data, models, params, robust, schedules, tasks, theory, trackers, transforms
from fedtempo.admission import Admission
from fedtempo.algorithms import Algorithm
from fedtempo.contracts import check_algorithm, check_backend
from fedtempo.errors import ConfigError, DataError, FedTempoError, ModelError, OutputError, StoreError, TrainingError
from fedtempo.evaluation import Evaluation
from fedtempo.injection import Faults
from fedtempo.reports import RoundReport
from fedtempo.result import Result, compare
from fedtempo.schedules import Now, Schedule
from fedtempo.training import run, train

__version__ = "0.1.0"

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

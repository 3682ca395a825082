"""FedTempo: federated learning that cares about what clients do between two aggregations."""

from fedtempo import algorithms, cohort, data, models, params, schedules, tasks, transforms
from fedtempo.algorithms import Algorithm
from fedtempo.errors import ConfigError, DataError, FedTempoError, ModelError, OutputError, TrainingError
from fedtempo.evaluation import Evaluation
from fedtempo.result import Result, RoundReport
from fedtempo.schedules import Now, Schedule
from fedtempo.training import run, train

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "ConfigError",
    "DataError",
    "Evaluation",
    "FedTempoError",
    "ModelError",
    "Now",
    "OutputError",
    "Result",
    "RoundReport",
    "Schedule",
    "TrainingError",
    "algorithms",
    "cohort",
    "data",
    "models",
    "params",
    "run",
    "schedules",
    "tasks",
    "train",
    "transforms",
]

"""Every public name of FedTempo. The package `fedtempo` loads them when the first one is used."""

from fedtempo import algorithms, data, devices, metrics, models, params, schedules, tasks, theory
from fedtempo.algorithms import Algorithm
from fedtempo.algorithms.algorithm import Memory, Serving, Uploads
from fedtempo.algorithms.named import ClientSettings, named
from fedtempo.client import compression as compress
from fedtempo.client import objectives, optimizers, transforms
from fedtempo.client.objectives import Received
from fedtempo.client.phase import Beside, Carry, Hook, Phase, StepInfo, length
from fedtempo.client.rules import Probe, RateRule, StopRule
from fedtempo.client.transforms import Transform
from fedtempo.comparison.compare import compare
from fedtempo.contracts import check_algorithm, check_backend, check_loss, check_metric, check_model
from fedtempo.errors import ConfigError, DataError, FedTempoError, ModelError, OutputError, StoreError, TrainingError
from fedtempo.evaluation.protocol import Evaluation, Scores, UserScores
from fedtempo.federation.costs import Costs
from fedtempo.metrics import Metric
from fedtempo.schedules import Now, Schedule
from fedtempo.server import asynchrony, cohort, robust
from fedtempo.server.admission import Admission
from fedtempo.server.fault_injection import Faults
from fedtempo.server.step import Server, descend, descend_scaled
from fedtempo.server.sums import Aggregate
from fedtempo.training import trackers
from fedtempo.training.delivery import PersonalModel
from fedtempo.training.result import Result
from fedtempo.training.round_report import RoundReport
from fedtempo.training.run import run, train
from fedtempo.training.saved import load_result
from fedtempo.training.view import Run

__all__ = [
    "Admission",
    "Aggregate",
    "Algorithm",
    "Beside",
    "Carry",
    "ClientSettings",
    "ConfigError",
    "Costs",
    "DataError",
    "Evaluation",
    "Faults",
    "FedTempoError",
    "Hook",
    "Memory",
    "Metric",
    "ModelError",
    "Now",
    "OutputError",
    "PersonalModel",
    "Phase",
    "Probe",
    "RateRule",
    "Received",
    "Result",
    "RoundReport",
    "Run",
    "Schedule",
    "Scores",
    "Server",
    "Serving",
    "StepInfo",
    "StopRule",
    "StoreError",
    "TrainingError",
    "Transform",
    "Uploads",
    "UserScores",
    "algorithms",
    "asynchrony",
    "check_algorithm",
    "check_backend",
    "check_loss",
    "check_metric",
    "check_model",
    "cohort",
    "compare",
    "compress",
    "data",
    "descend",
    "descend_scaled",
    "devices",
    "length",
    "load_result",
    "metrics",
    "models",
    "named",
    "objectives",
    "optimizers",
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

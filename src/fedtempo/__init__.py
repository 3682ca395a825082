"""FedTempo: federated learning that cares about what clients do between two aggregations."""

from fedtempo import data, models

__all__ = ["data", "models"]

"""Gradient transforms: an optimizer is two pure functions, on the client and on the server alike.

`init(params)` makes the state, `update(gradient, state, params, now)` turns a gradient into a direction and the next
state. They chain, so FedNAR is the *order* of two of them.
"""

from fedtempo.client.transforms.clip import clip_by_global_norm
from fedtempo.client.transforms.linear import add_weight_decay, momentum, scale, sgd
from fedtempo.client.transforms.moments import (
    Correction,
    adam_in_one_pass,
    scale_by_adagrad,
    scale_by_adam,
    scale_by_fednar_adam,
    scale_by_yogi,
)
from fedtempo.client.transforms.transform import (
    DecayAlone,
    OnePass,
    Transform,
    chain,
    identity,
    in_one_pass,
    is_identity,
    stateless,
)

__all__ = [
    "Correction",
    "DecayAlone",
    "OnePass",
    "Transform",
    "adam_in_one_pass",
    "add_weight_decay",
    "chain",
    "clip_by_global_norm",
    "identity",
    "in_one_pass",
    "is_identity",
    "momentum",
    "scale",
    "scale_by_adagrad",
    "scale_by_adam",
    "scale_by_fednar_adam",
    "scale_by_yogi",
    "sgd",
    "stateless",
]

"""Compression of what clients send up and of what they are sent: `compress=` of every algorithm."""

from collections.abc import Callable

from fedtempo.client.compression.compressor import Compressor, Feedback, FlatForm, chain
from fedtempo.client.compression.quantised import qsgd, rounding, sign
from fedtempo.client.compression.sparse import random_k, top_k

COMPRESSORS: dict[str, Callable[..., Compressor]] = {
    "top_k": top_k,
    "random_k": random_k,
    "qsgd": qsgd,
    "rounding": rounding,
    "sign": sign,
    "chain": chain,
}

__all__ = [
    "COMPRESSORS",
    "Compressor",
    "Feedback",
    "FlatForm",
    "chain",
    "qsgd",
    "random_k",
    "rounding",
    "sign",
    "top_k",
]

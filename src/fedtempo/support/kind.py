"""The kind of processor that this process computes on.

Torch and numpy have kernels for many instruction sets. They round differently, so equal bits can be promised on one
kind only: the same instruction sets, the same releases of the libraries, and the same settings of theirs.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fedtempo.support.threads import one_thread

SWITCHES = (
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
)
"""Variables by which a user chooses the kernels of torch, MKL, oneDNN, OpenBLAS and numpy."""
INSTRUCTIONS = (
    *("sse4_1", "avx", "fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile"),
    *("asimd", "asimdhp", "bf16", "sve", "sve2"),
)
"""The instruction sets by which the libraries choose kernels, in the words of /proc/cpuinfo."""


def kind_here(device: str = "cpu") -> dict[str, str]:
    """What decides the last bits of a run on this device, by part. Equal kinds give equal bits."""
    kind = dict(_processor())
    if device != "cpu":
        kind["device"] = _device_name(device)
    return kind


def in_words(kind: Mapping[str, str]) -> str:
    """The kind in one line."""
    return ", ".join(f"{part} {words}" for part, words in kind.items())


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What differs between two kinds, in one line. A record of nothing is that of an older release."""
    if not before:
        return "what it began on was not recorded"
    parts = [part for part in dict.fromkeys([*before, *now]) if before.get(part) != now.get(part)]
    return "; ".join(f"{part} {before.get(part, 'none')} before, {now.get(part, 'none')} now" for part in parts)


@functools.cache
def _processor() -> Mapping[str, str]:
    switches = [f"{name}={os.environ[name]}" for name in SWITCHES if name in os.environ]
    return {
        "processor": " ".join([platform.machine(), *_instructions()]),
        "torch": f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}",
        "numpy": " ".join([np.__version__, *_numpy_instructions()]),
        **({"switches": " ".join(switches)} if switches else {}),
        "arithmetic": _arithmetic(),
    }


def _instructions() -> list[str]:
    """The maker and the instruction sets; nothing where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return [platform.processor()] if platform.processor() else []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    maker = facts.get("vendor_id") or facts.get("CPU implementer")
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    return [*([maker] if maker else []), *(name for name in INSTRUCTIONS if name in flags)]


def _numpy_instructions() -> list[str]:
    try:
        config: Any = np.show_config(mode="dicts")
        return list(config["SIMD Extensions"]["found"])
    except (TypeError, KeyError):
        return []


def _device_name(device: str) -> str:
    module = getattr(torch, torch.device(device).type, None)
    named = getattr(module, "get_device_name", None)
    return f"{device} {named(torch.device(device))}" if named is not None else device


def _arithmetic() -> str:
    """A hash of small results. It sees what no list names: a library of another make, another branch of a kernel."""
    state = hashlib.sha256()
    with one_thread(), torch.no_grad():
        for result in _results():
            state.update(np.ascontiguousarray(result).tobytes())
    return state.hexdigest()[:12]


def _results() -> Iterator[np.ndarray | Tensor]:
    """Results whose last bits differ between kernels: products, convolutions, sums, functions and draws."""
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        images, filters = (
            torch.rand(shape, generator=generator, dtype=dtype) for shape in ((8, 16, 12, 12), (32, 16, 3, 3))
        )
        rows, columns, many = (
            images.reshape(256, 72)[:33, :65],
            filters.reshape(72, 64)[:65, :17],
            images.reshape(8, 48, 48),
        )
        yield from (rows @ columns, F.linear(rows, rows), many[0].T @ many[0], torch.bmm(many[:, :9], many))
        yield from (F.conv2d(images, filters), rows.sum(), rows.mean(0), rows.norm(), rows.var(1))
        yield from (rows.exp(), rows.tanh(), rows.log1p(), rows.sin(), rows.softmax(1), rows.sqrt(), rows.rsqrt())
        yield from (torch.addcmul(rows, rows, rows, value=0.3), torch.lerp(rows, rows * rows, 0.3))
        yield torch.randn(65, 33, generator=generator, dtype=dtype)
        yield torch.empty(65, 33, dtype=dtype).uniform_(-0.3, 0.3, generator=generator)
    random = np.random.default_rng(0)
    matrix = random.random((65, 65))
    yield from (matrix @ matrix[:, :17], np.exp(matrix), np.log(matrix), matrix**0.3, matrix.sum(0), matrix.std(1))
    yield from (random.standard_normal(500), random.dirichlet(np.ones(9), 50))
    yield np.array([function(value) for function in (math.exp, math.log, math.sin) for value in matrix[0].tolist()])

"""`python -m benchmarks.portable`: what a fixed instruction set costs. A process with it and one without, in turn."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}
"""Kernels that all processors with AVX2 have. `MKL_CBWR=AVX2` is faster, and has other bits on AMD than on Intel."""
VARIANTS: dict[str, dict[str, str]] = {"as the processor is": {}, "portable": VARIABLES}


def main() -> None:
    """Print processor time per round of each variant, the least of all rounds, and the ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.portable", description=main.__doc__)
    parser.add_argument("workloads", nargs="*", default=["W1", "W2", "W3", "W4"])
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count, after two that do not")
    chosen = parser.parse_args()
    for name in chosen.workloads:
        with ExitStack() as stack:
            programs = {words: stack.enter_context(_started(name, more)) for words, more in VARIANTS.items()}
            seconds: dict[str, list[float]] = {words: [] for words in programs}
            for number in range(chosen.rounds + 2):
                for words, program in programs.items():
                    taken = _one_round(program)
                    seconds[words] += [taken] if number >= 2 else []
            for program in programs.values():
                program.stdin.close()  # type: ignore[union-attr]
        least = {words: min(times) for words, times in seconds.items()}
        plain, portable = least.values()
        print(json.dumps({"workload": name, **least, "ratio": portable / plain}), flush=True)


def _started(name: str, variables: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", f"from benchmarks.portable import rounds; rounds({name!r})"]
    pipe: Any = subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, **variables}, stdin=pipe, stdout=pipe, text=True)


def _one_round(program: subprocess.Popen[str]) -> float:
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write("\n")
    program.stdin.flush()
    return float(program.stdout.readline())


def rounds(name: str) -> None:
    """One program: a round for every line that comes in, and its processor time as a line that goes out."""
    import torch

    from benchmarks import ours
    from benchmarks.workloads import FOLDER, arrays, by_name

    torch.set_num_threads(1)
    workload = by_name(name)
    running = ours.rounds(workload, ours.federated(workload, *arrays(workload, FOLDER)), workers=1)
    for _ in sys.stdin:
        began = time.process_time()
        next(running)
        print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main()

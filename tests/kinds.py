"""`make test-kinds`: numbers, laws, theory and faults on four kinds of processor, imitated by the libraries' switches.

Run: python -m tests.kinds [NAME ...]. Each kind is a run of pytest in a new process, for libraries choose their kernels
when they are loaded. On a processor without vector instructions some kinds are the same; this is said.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

TESTS = ("tests/numbers", "tests/laws", "tests/unit/theory", "tests/faults")
NONE, UP_TO_AVX2 = "X86_V3 X86_V4 AVX512_ICL AVX512_SPR", "X86_V4 AVX512_ICL AVX512_SPR"
"""What numpy is told to leave out."""


def switches(torch: str, mkl: str, onednn: str, openblas: str, numpy: str) -> dict[str, str]:
    """The variables by which each library takes the kernels of one processor on another."""
    return {
        "ATEN_CPU_CAPABILITY": torch,
        "MKL_CBWR": mkl,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "OPENBLAS_CORETYPE": openblas,
        "NPY_DISABLE_CPU_FEATURES": numpy,
    }


KINDS = {
    "sse4": switches("default", "COMPATIBLE", "SSE41", "Nehalem", NONE),
    "avx": switches("default", "AVX", "AVX", "Sandybridge", NONE),
    "avx2": switches("avx2", "AVX2", "AVX2", "Haswell", UP_TO_AVX2),
    "avx2 of another maker": switches("avx2", "COMPATIBLE", "AVX2", "Zen", UP_TO_AVX2),
}


def main() -> None:
    """Run the tests on each kind; the exit code says whether all of them passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kinds", description=main.__doc__)
    parser.add_argument("kinds", nargs="*", default=list(KINDS), help=", ".join(KINDS))
    chosen, arguments = parser.parse_known_args()
    if unknown := set(chosen.kinds) - set(KINDS):
        parser.error(f"kinds must be of {', '.join(KINDS)}. Got {', '.join(sorted(unknown))}.")
    seen: dict[str, str] = {}
    failed = []
    for name in chosen.kinds:
        environment = {**os.environ, **KINDS[name]}
        arithmetic = kind_of(environment)["arithmetic"]
        same = seen.setdefault(arithmetic, name)
        print(f"\n{name}: arithmetic {arithmetic}{'' if same == name else f', here that of {same}'}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *TESTS, *arguments]
        if subprocess.run(command, env=environment, check=False).returncode:
            failed.append(name)
    sys.exit(f"failed on {', '.join(failed)}" if failed else 0)


def kind_of(environment: dict[str, str]) -> dict[str, str]:
    """The kind that a new process with these variables is on."""
    code = "import json; from fedtempo.support.kind import kind_here; print(json.dumps(kind_here()))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()

"""`python -m benchmarks.peers.run_pfl_experiment E1`: whole experiments in pfl, two worker processes."""

from __future__ import annotations

import os
import sys
import tempfile

from benchmarks.peers.run_pfl import start_others

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BENCH_PFL_STATES"] = folder
        start_others("benchmarks.peers.pfl_experiment", sys.argv[1])
        # pfl connects its workers when it is imported, so this waits for the others.
        from benchmarks.peers.pfl_experiment import main

        main(sys.argv[1], first=True)

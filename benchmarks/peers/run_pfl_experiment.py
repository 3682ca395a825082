"""`python -m benchmarks.peers.run_pfl_experiment E1`: whole experiments in pfl, two worker processes.

pfl's users keep nothing from round to round, so experiments with personal or stateful methods are out of its reach.
"""

from __future__ import annotations

import sys

from benchmarks.peers.run_pfl import start_others

if __name__ == "__main__":
    start_others("benchmarks.peers.pfl_experiment", sys.argv[1])
    # pfl connects its workers when it is imported, so this waits for the others.
    from benchmarks.peers.pfl_experiment import main

    main(sys.argv[1], first=True)

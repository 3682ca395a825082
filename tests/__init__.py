"""The tests: `unit` mirrors `src/fedtempo`; `laws`, `numbers`, `faults` and `e2e` go across modules."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

"""Comparisons: runs side by side, paired over seeds and users. `ft.compare` is `compare` in `comparison/compare.py`."""

from typing import TYPE_CHECKING

from fedtempo.support.lazy import names_of

if TYPE_CHECKING:
    from fedtempo.comparison.public_names import *  # noqa: F403
    from fedtempo.comparison.public_names import __all__ as __all__
else:
    # `ft.compare` is loaded with all public names, and shall not wait for what draws tables and reads files.
    __getattr__, __dir__ = names_of("fedtempo.comparison.public_names")

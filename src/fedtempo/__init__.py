"""FedTempo: federated learning in PyTorch, with control over what clients do between two aggregations."""

from typing import TYPE_CHECKING

from fedtempo.support.lazy import names_of

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fedtempo.public_names import *  # noqa: F403
    from fedtempo.public_names import __all__ as __all__
else:  # the branch above is for type checkers, which then know these names and refuse others
    # Loading the public names loads torch. `fedtempo --help` must not wait for that.
    __getattr__, __dir__ = names_of("fedtempo.public_names", "__version__")

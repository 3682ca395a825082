"""FedTempo: federated learning in PyTorch, about what clients do between two aggregations."""

from typing import TYPE_CHECKING

from fedtempo.support.lazy import names_of

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fedtempo.public_names import *  # noqa: F403
    from fedtempo.public_names import __all__ as __all__
else:  # a type checker shall know the names above, and refuse others
    # `fedtempo --help` shall not wait for torch: the public names are loaded when the first of them is used.
    __getattr__, __dir__ = names_of("fedtempo.public_names", "__version__")

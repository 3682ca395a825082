"""FedTempo: federated learning in PyTorch, about what clients do between two aggregations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fedtempo.public import *  # noqa: F403
    from fedtempo.public import __all__ as __all__
else:  # a type checker shall know the names above, and refuse others
    # `fedtempo --help` shall not wait for torch: the public names are loaded when the first of them is used.
    def __getattr__(name: str) -> Any:
        if name == "__all__" or not name.startswith("_"):
            public = import_module("fedtempo.public")
            if name in ("__all__", *public.__all__):
                return getattr(public, name)
        raise AttributeError(f"module 'fedtempo' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*import_module("fedtempo.public").__all__, "__version__"]

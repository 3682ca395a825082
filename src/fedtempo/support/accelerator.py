"""The device that a run is on: what `auto` means, what is asked of a device, and what its errors say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedtempo.errors import ConfigError, FedTempoError, TrainingError, first_line, require, shown

CPU, AUTO = "cpu", "auto"
RULE = "a device that torch can use here, such as 'cpu', or 'auto'"
_Lost = getattr(torch, "AcceleratorError", None)  # torch before 2.8 has no type of its own for it


def device_of(device: str | torch.device) -> str:
    """A device by its name: `auto` is the accelerator that torch finds, else the CPU.

    It exists here and has numbers of 64 bits, in which uploads are added up exactly.
    """
    require(isinstance(device, (str, torch.device)), "device", RULE, device)
    name = str(device)
    if name == AUTO:
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        name = CPU if found is None else found.type
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(
            f"device must be {_rule_broken_by(error)}. Got {shown(device)}: {first_line(error)}."
        ) from error
    try:
        torch.zeros(1, device=name, dtype=torch.float64).item()
    except (RuntimeError, TypeError) as error:
        rule = "one with numbers of 64 bits (float64), in which uploads are added up exactly"
        raise ConfigError(f"device must be {rule}. Got {shown(device)}: {first_line(error)}.") from error
    return CPU if torch.device(name).type == CPU else name


def _rule_broken_by(error: Exception) -> str:
    if "forked subprocess" in str(error):
        return "used for the first time after a fork: start such a process by 'spawn'"
    return RULE


def accelerator_in_use() -> bool:
    """Whether this process has started an accelerator. Asking whether there is one does not start it."""
    others = {torch._C._get_privateuse1_backend_name()}  # a device that some package has added to torch
    names = {"cuda", "xpu", "mtia", "hpu", *others}
    questions = (getattr(getattr(torch, name, None), "is_initialized", None) for name in names)
    return any(ask is not None and bool(ask()) for ask in questions)


@contextmanager
def told_in_one_line(device: str) -> Iterator[None]:
    """Turn what a device raises, when its memory runs out or when it is gone, into an error of one line."""
    try:
        yield
    except FedTempoError as error:
        if _Lost is not None and isinstance(error.__cause__, _Lost):
            raise _lost(device, error.__cause__) from error
        raise
    except torch.OutOfMemoryError as error:
        raise TrainingError(f"the memory of device {device!r} ran out: {first_line(error)}") from error
    except RuntimeError as error:
        if _Lost is not None and isinstance(error, _Lost):
            raise _lost(device, error) from error
        raise


def _lost(device: str, error: BaseException) -> TrainingError:
    return TrainingError(
        f"run stopped: device {device!r} failed ({first_line(error)}). A run with a folder goes on from its last round."
    )

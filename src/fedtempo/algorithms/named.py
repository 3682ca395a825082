"""How the function of an algorithm takes its settings: the decorator `named`, and what all algorithms take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, ParamSpec, TypedDict, cast, get_args, get_type_hints, is_typeddict

from fedtempo.algorithms.algorithm import Algorithm
from fedtempo.client.compression.compressor import Compressor
from fedtempo.client.optimizers import Optimizer, plain
from fedtempo.client.phase import Phase
from fedtempo.client.transforms import Transform
from fedtempo.errors import bound_arguments, require
from fedtempo.params import Selector, everything
from fedtempo.schedules import Schedule


class TrafficSettings(TypedDict, total=False):
    """What every algorithm and every wrapper of one takes: how uploads and downloads are compressed."""

    compress: Compressor | None
    compress_down: Compressor | None


class ClientSettings(TypedDict, total=False):
    """What every algorithm takes besides its own settings: how its clients step, and how their messages travel."""

    optimizer: Optimizer
    """How local steps turn gradients into directions, and what becomes of the optimizer's state between rounds."""
    trains: Selector
    """The tensors that move; the others keep their first values and are not sent up."""
    accumulate: int
    """Pieces in which each batch goes through the model: the same gradient in less memory."""
    compress: Compressor | None
    """How uploads travel, such as `compress.top_k(0.01)`. Taken by `named`: an algorithm's function never sees it."""
    compress_down: Compressor | None
    """How the shared model travels down, such as `compress.rounding(8)`. Taken by `named` too."""


class PhaseSettings(TypedDict, total=False):
    """The clients' settings that a phase takes: how its clients step."""

    optimizer: Optimizer
    trains: Selector
    accumulate: int


def phase_settings(clients: ClientSettings | PhaseSettings) -> PhaseSettings:
    """The clients' settings without those of their messages, which are no phase's."""
    steps = {name: value for name, value in clients.items() if name in PhaseSettings.__annotations__}
    return cast(PhaseSettings, steps)


def restricted(clients: ClientSettings | PhaseSettings, to: Selector) -> PhaseSettings:
    """The clients' settings for a phase that trains only these tensors, such as a head."""
    return {**phase_settings(clients), "trains": to & clients.get("trains", everything)}


def gradient_only(clients: ClientSettings | PhaseSettings) -> PhaseSettings:
    """The clients' settings for a phase whose gradient itself is wanted, so that no optimizer may change it."""
    return {**phase_settings(clients), "optimizer": plain}


Arguments = ParamSpec("Arguments")
WORDS: dict[Any, str] = {
    Schedule: "a schedule",
    Selector: "a selector, such as submodule('head')",
    Transform: "a transform",
    Optimizer: "an optimizer, such as optimizers.adamw()",
    Algorithm: "an Algorithm",
    Compressor: "a compressor, such as compress.top_k(0.01)",
}
_keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
PHASE_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Phase)}
TRAFFIC: dict[str, Any] = {"compress": Compressor | None, "compress_down": Compressor | None}


def named(build: Callable[Arguments, Algorithm]) -> Callable[Arguments, Algorithm]:
    """Check arguments against their annotations, and let the algorithm print as the call that made it.

    The function also takes `compress=` and `compress_down=`, unless it has parameters of these names.
    """
    signature, kinds = _with_traffic(*_spelt_out(build))
    written = inspect.signature(build).parameters
    added = [name for name in TRAFFIC if name not in written]
    steps = [name for name in PhaseSettings.__annotations__ if name in signature.parameters and name not in written]

    @functools.wraps(build)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Algorithm:
        given = bound_arguments(build.__name__, signature, kinds, (args, kwargs), WORDS)
        own = {field: value for field, value in given.items() if field not in added}
        traffic = {field: given[field] for field in added if given.get(field) is not None}
        built = build(**own)  # type: ignore[call-arg]
        require(isinstance(built, Algorithm), f"what {build.__name__} returns", "an Algorithm", built)
        _check_passed_on(build.__name__, built, {name: given[name] for name in steps if name in given})
        algorithm = _compressing(built, **traffic)
        return replace(algorithm, name=build.__name__, settings=given)

    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = kinds
    return call


def _check_passed_on(name: str, algorithm: Algorithm, clients: Mapping[str, Any]) -> None:
    """A setting that `**clients` took and no phase got would print with the algorithm and change nothing."""
    phases = [one for phase in algorithm.phases for one in phase.together]
    for field, value in clients.items():
        default = PHASE_DEFAULTS[field]
        reached = value == default or any(getattr(phase, field) != default for phase in phases)
        require(reached, f"{field} of {name}", "such that it reaches a phase: pass **clients on to Phase", value)


def _compressing(
    algorithm: Algorithm, compress: Compressor | None = None, compress_down: Compressor | None = None
) -> Algorithm:
    """The algorithm with its traffic compressed; what is not given stays as it was."""
    if compress is not None:
        algorithm = replace(algorithm, uploads=replace(algorithm.uploads, compress=compress))
    return algorithm if compress_down is None else replace(algorithm, compress_down=compress_down)


def _with_traffic(signature: inspect.Signature, kinds: Mapping[str, Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """The signature and types with `compress` and `compress_down` after the function's own parameters."""
    added = {name: kind for name, kind in TRAFFIC.items() if name not in signature.parameters}
    keywords = [_keyword(name, default=None, annotation=kind) for name, kind in added.items()]
    return signature.replace(parameters=[*signature.parameters.values(), *keywords]), {**kinds, **added}


def _spelt_out(build: Callable[..., Algorithm]) -> tuple[inspect.Signature, dict[str, Any]]:
    """The function's signature and types, with the keywords of `**clients: Unpack[ClientSettings]` one by one."""
    signature = inspect.signature(build)
    kinds = dict.fromkeys(signature.parameters, Any) | get_type_hints(build)
    parameters = list(signature.parameters.values())
    unnamed = [str(p) for p in parameters if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY)]
    require(not unnamed, f"arguments of {build.__name__}", "such that they can be given by name", unnamed)
    if not parameters or parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return signature, kinds
    own, rest = parameters[:-1], parameters[-1].name
    # Without an annotation `**clients` can mean nothing else.
    unpacked = ClientSettings if kinds[rest] is Any else next(iter(get_args(kinds[rest])), None)
    shared = get_type_hints(unpacked) if is_typeddict(unpacked) else {}
    defaults = PHASE_DEFAULTS | dict.fromkeys(TRAFFIC)
    rule = "of type Unpack[ft.ClientSettings], or of none"
    require(bool(shared) and shared.keys() <= defaults.keys(), f"**{rest} of {build.__name__}", rule, kinds[rest])
    added = [_keyword(name, default=defaults[name], annotation=kind) for name, kind in shared.items()]
    spelt = {**{name: kind for name, kind in kinds.items() if name != rest}, **shared}
    return signature.replace(parameters=[*own, *added]), spelt

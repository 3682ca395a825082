"""Functions of an algorithm of one's own are tried before training; what is wrong is one line that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo.client.objectives import Value
from fedtempo.client.rules import RateRule
from fedtempo.contracts import small_data
from fedtempo.errors import ConfigError, ModelError, TrainingError
from fedtempo.params import Params

PLAIN = ft.algorithms.fedavg(lr=0.1, steps=2)


def run(algorithm: ft.Algorithm, backend: str = "serial", **settings: Any) -> ft.Result:
    model = ft.models.mlp(6, [5], 4)
    return ft.run(
        model=model, data=small_data(), algorithm=algorithm, rounds=1, backend=backend, progress=False, **settings
    )


def stepping(update: Callable[..., Any]) -> ft.Algorithm:
    optimizer = ft.optimizers.Optimizer(ft.Transform(lambda params: (), update), name="mine")
    return ft.algorithms.fedavg(lr=0.1, steps=2, optimizer=optimizer)


def serving(**functions: Any) -> ft.Algorithm:
    plain = {"init": lambda trained: {}, "step": lambda shared, state, aggregate, now: (shared, state)}
    return replace(PLAIN, server=ft.Server(**{**plain, **functions}))


def minimising(objective: Callable[..., Any]) -> ft.Algorithm:
    return PLAIN.with_phases(lambda phase: replace(phase, objective=objective))


def keeping(**functions: Any) -> ft.Algorithm:
    return replace(PLAIN, memory=ft.Memory(**functions))


def sending(upload: Callable[..., Any]) -> ft.Algorithm:
    return replace(PLAIN, uploads=ft.Uploads(upload))


def fails(*arguments: Any) -> Any:
    raise ZeroDivisionError("nothing to divide by")


def noisy(gradient: Params, state: Any, params: Params, now: ft.Now) -> Any:
    return {name: g + torch.randn_like(g) for name, g in gradient.items()}, state


def decaying(gradient: Params, state: Any, params: Params, now: ft.Now) -> Any:
    for value in params.values():
        value.mul_(0.99)
    return gradient, state


def displaced(received: ft.Received, carry: ft.Carry) -> dict[str, Params]:
    return {"delta": {name: value.sub_(received.shared[name]) for name, value in carry.shared.items()}}


def counted(received: ft.Received, carry: ft.Carry) -> Params:
    return {name: value.add_(1) for name, value in carry.personal.items()}


PAIR = "must be a function of (gradient, state, parameters, now) that returns (direction, state). Got "
FORM = "optimizer 'mine', update must return a direction of the gradient's form. Got "
HERE = "ZeroDivisionError (nothing to divide by) in fails, test_functions.py line "


def remembering(init: Any, update: Callable[..., Any], state: Any = "reset") -> ft.Algorithm:
    optimizer = ft.optimizers.Optimizer(ft.Transform(init, update), name="mine", state=state)
    return ft.algorithms.fedavg(lr=0.1, steps=2, optimizer=optimizer)


def filling(gradient: Params, state: Any, params: Params, now: ft.Now) -> Any:
    """As torch's optimizers do: the state of a tensor is made at its first step."""
    return gradient, {name: state.get(name, torch.zeros_like(g)) + g for name, g in gradient.items()}


def scaling(**functions: Any) -> ft.Algorithm:
    return ft.algorithms.adaptive_decay(PLAIN, **{"rate": number(1.0), "decay": number(0.1), **functions})


def number(value: Any) -> Callable[..., Any]:
    return lambda gradient, params, now: value


RATE = "rate must be a function of (gradient, weights, position) that returns a finite number >= 0, or one for each "
RATE += "tensor by its name. Got "
DECAY = RATE.replace("rate must", "decay must").replace(" >= 0", "")

WRONG: dict[str, tuple[ft.Algorithm, str]] = {
    "a rate of two arguments": (scaling(rate=lambda gradient, params: 1.0), RATE + "TypeError ("),
    "a rate that fails": (scaling(rate=fails), RATE + HERE),
    "a rate that is a text": (scaling(rate=number("half")), RATE + "'half'."),
    "a rate below 0": (scaling(rate=number(-0.5)), RATE + "-0.5."),
    "a rate below 0 for some gradients": (
        scaling(rate=lambda g, params, now: g["head.bias"].sum()),
        RATE + "-4.0.",
    ),
    "a rate that is no number": (scaling(rate=number(torch.tensor(float("nan")))), RATE + "nan."),
    "a rate of another shape": (scaling(rate=number(torch.ones(7))), RATE + "(7,) torch.float32 for "),
    "a rate for one tensor": (scaling(rate=number({"head.bias": 0.5})), RATE + "nothing for "),
    "a decay that is nothing": (scaling(decay=number(None)), DECAY + "None."),
    "a decay without end": (scaling(decay=number(float("inf"))), DECAY + "inf."),
    "a decay with a text for a tensor": (
        scaling(decay=lambda g, params, now: dict.fromkeys(params, 0.1) | {"head.bias": "0.1"}),
        DECAY + "'0.1' for 'head.bias'.",
    ),
    "a rate behind another transform": (
        scaling(rate=number(-1)).with_direction(
            lambda d: ft.transforms.chain(ft.transforms.clip_by_global_norm(1.0), d)
        ),
        RATE + "-1.",
    ),
    "an optimizer without a state": (stepping(lambda g, s, p, now: g), PAIR + "ValueError"),
    "an optimizer of three arguments": (stepping(lambda g, s, p: (g, s)), PAIR + "TypeError"),
    "an optimizer that fails": (stepping(fails), PAIR + HERE),
    "an optimizer that leaves a tensor out": (
        stepping(lambda g, s, p, now: ({n: d for n, d in g.items() if not n.endswith("head.bias")}, s)),
        FORM + "nothing for 'head.bias'.",
    ),
    "an optimizer with one number for each tensor": (
        stepping(lambda g, s, p, now: ({n: d.sum() for n, d in g.items()}, s)),
        FORM + "() torch.float32 for ",
    ),
    "an optimizer of another type": (
        stepping(lambda g, s, p, now: ({n: d.half() for n, d in g.items()}, s)),
        " torch.float16 for ",
    ),
    "an optimizer that draws": (stepping(noisy), "update must be without random numbers"),
    "a count that is no tensor": (
        remembering(lambda params: {"steps": 0}, lambda g, s, p, now: (g, {"steps": s["steps"] + 1})),
        "must hold tensors alone, in dicts, lists or tuples: torch.zeros(()) for a count, () for nothing. "
        "Got 0 at steps.",
    ),
    "a kept count that is no tensor": (
        remembering(lambda params: {"steps": 0}, lambda g, s, p, now: (g, s), "keep"),
        "the state of optimizer 'mine', init must hold tensors alone",
    ),
    "a state that begins as None": (
        remembering(lambda params: None, lambda g, s, p, now: (g, s)),
        "the state of optimizer 'mine', init must hold tensors alone",
    ),
    "a state that is filled at the first step": (
        remembering(lambda params: {}, filling),
        "optimizer 'mine', update must return a state of the form that init made. Got '/",
    ),
    "a state that changes its type": (
        remembering(lambda params: torch.zeros((), dtype=torch.int64), lambda g, s, p, now: (g, s + 0.5)),
        "update must return a state of the form that init made",
    ),
    "a server's count that is no tensor": (
        serving(init=lambda trained: {"rounds": 0}),
        "the state of server.init must hold tensors alone, in dicts, lists or tuples: torch.zeros(()) for a count",
    ),
    "a client's count that is no tensor": (
        keeping(initial_state=lambda shared, names: {"rounds": 0}),
        "what memory.initial_state returns must hold tensors alone",
    ),
    "a note of a round that is no tensor": (
        keeping(begin=lambda received, personal: (personal, {"steps": 0})),
        "what memory.begin returns must hold tensors alone",
    ),
    "a rule's count that is no tensor": (
        PLAIN.with_phases(
            lambda phase: phase.hooked(
                ft.Hook(rate_rule=RateRule(init=lambda params: {"steps": 0}, update=lambda probe, s, now: (0.1, s)))
            )
        ),
        "the state of a phase's rule, init, must hold tensors alone",
    ),
    "an objective that fails": (minimising(fails), "phases must be made of functions that run on the model"),
    "an objective that returns a pair": (
        minimising(lambda loss, params, batch, view, now: loss(params, batch)),
        "such as an objective that returns a Value. Got AttributeError",
    ),
    "server.init": (serving(init=fails), "server.init and server.extra must be"),
    "server.model": (serving(model=fails), "server.model must be a function of (shared, state)"),
    "a server.model of other tensors": (
        serving(model=lambda shared, state: {"mean": torch.zeros(())}),
        "server.model must return shared tensors in their form. Got 'mean', which is not among them.",
    ),
    "an upload without groups": (
        sending(lambda received, carry: carry.shared),
        "uploads.upload must be a function of (received, carry) that returns tensors by group, 'delta' among them.",
    ),
    "memory.initial_state": (keeping(initial_state=fails), "memory.initial_state must be"),
    "memory.begin": (keeping(begin=lambda received, personal: None), "memory.begin must be"),
    "an optimizer that writes over the weights": (
        stepping(decaying),
        "optimizer 'mine', update must leave the tensors that it is given as they are, and return others. "
        "Got a write into 'body.1.weight'.",
    ),
    "an upload that writes over the model": (sending(displaced), "uploads.upload must leave the tensors that it is"),
    "a final state that writes over the first one": (
        keeping(initial_state=lambda shared, trained: {"count": torch.zeros(())}, final_state=counted),
        "memory.final_state must leave the tensors that it is given as they are, and return others. "
        "Got a write into 'count'.",
    ),
    "memory.final_state": (keeping(final_state=lambda received, carry: None), "memory.final_state must be"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line_before_training(name: str) -> None:
    algorithm, words = WRONG[name]
    with pytest.raises(ConfigError) as told:
        run(algorithm)
    assert words in str(told.value) and "\n" not in str(told.value)


class OfTwo(nn.Module):
    """A model of two inputs, whose body takes them as `forward` calls it."""

    def __init__(self, body: nn.Module, join: Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.body, self.head, self.join = body, nn.Linear(5, 3), join

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.head(self.join(self.body, a, b))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(a) + b.mean(1, keepdim=True), b


BODIES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "of one input": (
        lambda: OfTwo(nn.Linear(7, 5), lambda body, a, b: body(torch.cat([a, b], 1))),
        "TypeError (Linear.forward() got an unexpected keyword argument 'a')",
    ),
    "with two outputs": (lambda: OfTwo(Pair(), lambda body, a, b: body(a, b)[0]), "a tuple with 2 tensors"),
}


def on_two_inputs(model: Callable[[], nn.Module], algorithm: ft.Algorithm) -> ft.Result:
    draws = torch.Generator().manual_seed(0)
    clients = [
        {"a": torch.randn(8, 4, generator=draws), "b": torch.randn(8, 3, generator=draws), "y": torch.arange(8) % 3}
        for _ in range(3)
    ]
    data = ft.data.FederatedData.from_clients(clients)
    return ft.run(model=model, data=data, algorithm=algorithm, rounds=1, progress=False)


@pytest.mark.parametrize("name", BODIES)
def test_what_moon_needs_of_a_body_is_said(name: str) -> None:
    """The error spoke of functions and objectives, of which the user has written none."""
    model, got = BODIES[name]
    assert on_two_inputs(model, PLAIN).history
    with pytest.raises(ModelError) as told:
        on_two_inputs(model, ft.algorithms.moon(lr=0.1, steps=1))
    rule = (
        "the model's body must take the model's inputs, 'a', 'b', and return one tensor: moon computes features apart"
    )
    assert str(told.value) == f"{rule} from the head. Got {got}."


def test_a_failure_of_the_objective_is_not_blamed_on_a_body_that_does_not_run_alone() -> None:
    with pytest.raises(ConfigError, match=r"phases must be .* ZeroDivisionError"):
        on_two_inputs(BODIES["of one input"][0], minimising(fails))


RIGHT: dict[str, ft.Algorithm] = {
    "a rate over the gradient's norm": scaling(rate=lambda g, params, now: 1 / (1e-30 + g["head.bias"].norm())),
    "a tensor for each tensor": scaling(rate=lambda g, params, now: {n: t.abs() / 9 for n, t in g.items()}),
    "a decay below 0": scaling(decay=number(-0.1)),
    "numbers of two kinds": scaling(rate=lambda g, params, now: {n: torch.tensor(0.5) for n in g}, decay=number(1)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_factors_that_scale_every_tensor_are_taken(name: str) -> None:
    assert run(RIGHT[name]).history


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
def test_what_is_right_stays_so(backend: str) -> None:
    def same(loss: Any, params: Params, batch: Any, view: Any, now: ft.Now) -> Value:
        value, buffers = loss(params, batch)
        return Value(value, value, buffers)

    own = replace(minimising(same), memory=ft.Memory(begin=lambda received, personal: (personal, {})))
    assert run(own, backend).params["head.bias"].equal(run(PLAIN, backend).params["head.bias"])


def momentum(one_pass: Any) -> ft.Algorithm:
    def update(gradient: Params, state: Params, params: Params, now: ft.Now) -> tuple[Params, Params]:
        new = {name: 0.9 * state[name] + g for name, g in gradient.items()}
        return new, new

    transform = ft.Transform(
        lambda params: {name: torch.zeros_like(p) for name, p in params.items()}, update, one_pass=one_pass
    )
    return ft.algorithms.fedavg(lr=0.1, steps=2, optimizer=ft.optimizers.Optimizer(transform, name="mine"))


def kernel(rated: bool, decays: bool, remembers: bool) -> Any:
    def step(gradient: Params, decay: float, state: Params, params: Params, now: ft.Now, rate: float) -> Params:
        whole = {name: g + decay * params[name] if decays else g for name, g in gradient.items()}
        new = {name: 0.9 * state[name] + g for name, g in whole.items()}
        for name, value in new.items():
            params[name].sub_(value, alpha=rate if rated else 1.0)
        return new if remembers else state

    return step


def writes_and_declines(gradient: Params, decay: float, state: Any, params: Params, now: ft.Now, rate: float) -> None:
    params["head.bias"].add_(1.0)


KERNELS = {
    "leaves out the rate": kernel(False, True, True),
    "leaves out the decay": kernel(True, False, True),
    "leaves its state as it was": kernel(True, True, False),
    "writes and declines": writes_and_declines,
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_steps_unlike_update_is_refused(name: str) -> None:
    """The serial backend would step by the one, the vectorised backend by the other."""
    with pytest.raises(ConfigError, match="optimizer 'mine', one_pass must step as update does"):
        run(momentum(KERNELS[name]))


def test_a_kernel_that_steps_as_update_does_is_taken() -> None:
    fast, plain = run(momentum(kernel(True, True, True))), run(momentum(None))
    assert torch.allclose(fast.params["head.bias"], plain.params["head.bias"], atol=1e-6)


WITH_MOMENTUM = {
    "fedavg": ft.algorithms.fedavg(lr=0.1, steps=3, momentum=0.5),
    "fedper": ft.algorithms.fedper(lr=0.1, steps=3, momentum=0.5),
    "fednova": ft.algorithms.fednova(lr=0.1, steps=3, momentum=0.5),
}


@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_fednar_goes_around_a_momentum_of_the_algorithms_own(name: str) -> None:
    """Clipping keeps a bound of the weights' norm where it takes a step in one pass, and none where it does not."""
    clipped = ft.algorithms.fednar(WITH_MOMENTUM[name], weight_decay=0.1, max_norm=1.0)
    serial, together = (run(clipped, backend) for backend in ("serial", "vectorised"))
    for tensor, other in zip(serial.params.values(), together.params.values(), strict=True):
        torch.testing.assert_close(tensor, other)


SERVER_STEPS: dict[str, tuple[Callable[..., Any], str]] = {
    "fails": (fails, "Got ZeroDivisionError (nothing to divide by) in round 0."),
    "returns no state": (lambda shared, state, aggregate, now: shared, "that returns (shared, state). Got ValueError"),
    "adds a tensor": (
        lambda shared, state, aggregate, now: ({**shared, "mean": torch.zeros(())}, state),
        "Got 'mean', which is not among them in round 0.",
    ),
    "changes shapes": (
        lambda shared, state, aggregate, now: ({n: t.sum() for n, t in shared.items()}, state),
        "server.step must return tensors of the names, shapes and types that it was given. Got () ",
    ),
    "lets its state grow": (
        lambda shared, state, aggregate, now: (shared, {**state, "seen": torch.zeros(())}),
        "a state of the names, shapes and types that server.init made. Got 'state/seen', which is not among them in",
    ),
    "counts without a tensor": (
        lambda shared, state, aggregate, now: (shared, {"rounds": 1}),
        "server.step must return a state of the names, shapes and types that server.init made. Got 1 at rounds in",
    ),
}


@pytest.mark.parametrize("name", SERVER_STEPS)
def test_a_servers_step_is_named_with_its_round(name: str) -> None:
    step, words = SERVER_STEPS[name]
    with pytest.raises(TrainingError) as told:
        run(serving(step=step))
    assert words in str(told.value) and "\n" not in str(told.value)


class Mean(NamedTuple):
    sums: list[torch.Tensor]
    rounds: torch.Tensor


def test_a_servers_state_of_lists_and_names_is_resumed_as_it_was(tmp_path: Path) -> None:
    def step(shared: Params, state: Mean, aggregate: Any, now: ft.Now) -> tuple[Params, Mean]:
        state.sums[0] = state.sums[0] + 1
        moved = {name: value + aggregate.means["delta"][name] / state.sums[0] for name, value in shared.items()}
        return moved, Mean(state.sums, state.rounds + 1)

    own = serving(init=lambda trained: Mean([torch.zeros(())], torch.zeros(())), step=step)
    settings = {"algorithm": own, "model": ft.models.mlp(6, [5], 4), "data": small_data(), "progress": False}
    whole = ft.run(**settings, rounds=4)
    ft.run(**settings, rounds=2, out=tmp_path / "run")
    assert ft.run(**settings, rounds=4, out=tmp_path / "run", resume=True).digest() == whole.digest()

"""Every compressor with every memory against numpy, five rounds of changing cohorts; bytes by the formulas."""

import numpy as np
import pytest

import fedtempo as ft
from fedtempo import algorithms as fl
from tests.numbers.single_model import compression as by_hand
from tests.numbers.single_model.problem import SOFTMAX, SOME, assert_same, run
from tests.numbers.single_model.reference import Control, Extrapolation, NormalizedDecay, averaging, federate, sgd

START = np.linspace(-0.5, 0.7, 9)
ALL = len(SOFTMAX.sizes)
RULES = {
    "top_k": (lambda feedback: ft.compress.top_k(0.3, feedback=feedback), lambda memory: by_hand.top_k(0.3)),
    "random_k": (
        lambda feedback: ft.compress.random_k(0.5, feedback=feedback),
        lambda memory: by_hand.random_k(0.5, scaled=not memory),
    ),
    "qsgd": (lambda feedback: ft.compress.qsgd(4, feedback=feedback), lambda memory: by_hand.qsgd(4, memory)),
    "rounding": (
        lambda feedback: ft.compress.rounding(3, feedback=feedback),
        lambda memory: by_hand.rounding(3, memory),
    ),
    "sign": (lambda feedback: ft.compress.sign(feedback=feedback), lambda memory: by_hand.sign),
    "chain": (
        lambda feedback: ft.compress.chain([ft.compress.top_k(0.5), ft.compress.sign()], feedback=feedback),
        lambda memory: by_hand.largest_then_signs(0.5),
    ),
}


def estimating(weighting: str):
    """EF21's server: d <- d + sum_S c_i / N, or with n_i / n; x <- x + d."""
    d = np.zeros(len(START))

    def step(t, x, sent, weights):
        nonlocal d
        share = sum(SOFTMAX.sizes[i] for i in SOME[t]) / sum(SOFTMAX.sizes) if weighting == "samples" else None
        for c, w in zip(sent, weights, strict=True):
            d = d + (c / ALL if share is None else share * w * c)
        return x + d

    return step


@pytest.mark.parametrize("feedback", ["none", "ef14", "ef21"])
@pytest.mark.parametrize("name", RULES)
def test_fedavg(backend, name, feedback):
    weighting = "samples" if name in ("top_k", "sign") else "uniform"
    ours, theirs = RULES[name]
    algorithm = fl.fedavg(lr=0.3, steps=3, weighting=weighting, compress=ours(feedback))
    sent = by_hand.Compression(theirs(feedback != "none"), feedback, seed=5)
    server = estimating(weighting) if feedback == "ef21" else averaging()
    expected = federate(SOFTMAX, START, SOME, sent.of(sgd(SOFTMAX, 0.3, 3)), server, weighting)
    result = run(SOFTMAX, algorithm, START, SOME, backend, seed=5)
    assert_same(result, expected, 1e-9)
    for client, memory in sent.memory.items() if feedback != "none" else ():
        kept = result.client_state(client, "last")
        ours_flat = [kept[f"_compression/delta/{tensor}"].numpy().ravel() for tensor in by_hand.TENSORS]
        np.testing.assert_allclose(np.concatenate(ours_flat), memory, atol=1e-9)


def test_fednar_around_feddecay_is_one_line(backend):
    algorithm = fl.fednar(
        fl.feddecay(lr=0.3, beta=0.6, steps=3), weight_decay=0.1, max_norm=0.4, compress=ft.compress.top_k(0.3)
    )
    inner = sgd(SOFTMAX, lambda t, k: 0.3 * 0.6**k, 3, shape=NormalizedDecay(0.1, 0.4))
    sent = by_hand.Compression(by_hand.top_k(0.3), "ef14")
    assert_same(run(SOFTMAX, algorithm, START, SOME, backend), federate(SOFTMAX, START, SOME, sent.of(inner)), 1e-9)


def test_scaffold_sends_two_messages_with_a_memory_each(backend):
    """c_i comes from the exact displacement; Delta c_i goes up compressed, with its own memory."""
    control = Control(SOFTMAX, len(START))
    delta = by_hand.Compression(by_hand.sign, "ef14")
    change = by_hand.Compression(by_hand.sign, "ef14", group="control")
    exact = sgd(SOFTMAX, 0.3, 3, control=control)

    def client(t, i, x):
        so_far, old = control._change, control.of[i]
        displacement = exact(t, i, x)
        control._change = so_far + change(t, i, control.of[i] - old)
        return delta(t, i, displacement)

    expected = federate(SOFTMAX, START, SOME, client, control.closing(averaging()))
    algorithm = fl.scaffold(lr=0.3, steps=3, compress=ft.compress.sign())
    assert_same(run(SOFTMAX, algorithm, START, SOME, backend), expected, 1e-9)


def test_fedexp_extrapolates_by_what_was_received(backend):
    sent, server = by_hand.Compression(by_hand.top_k(0.3), "ef14"), Extrapolation()
    expected = federate(SOFTMAX, START, SOME, sent.of(sgd(SOFTMAX, 0.3, 3)), server)
    algorithm = fl.fedexp(lr=0.3, steps=3, compress=ft.compress.top_k(0.3))
    assert_same(run(SOFTMAX, algorithm, START, SOME, backend), expected, 1e-9)
    assert max(server.rates) > 1


def test_downloads_are_rounded_before_clients_train(backend):
    """Clients move from C(x), the server keeps x: x <- x + mean (y_i - C(x))."""
    client = by_hand.downloaded(sgd(SOFTMAX, 0.3, 3), by_hand.rounding(4), seed=2)
    algorithm = fl.fedavg(lr=0.3, steps=3, compress_down=ft.compress.rounding(4))
    result = run(SOFTMAX, algorithm, START, SOME, backend, seed=2)
    assert_same(result, federate(SOFTMAX, START, SOME, client), 1e-9)


def test_bytes_are_those_of_the_formulas():
    """Tensors of 6 and 3 numbers of 8 bytes, one client: the specification's table, in whole bytes a tensor."""
    both = (6, 3)
    expected = {
        "top_k": sum(8 * k + by_hand.bits_of_places(k, d) for k, d in ((2, 6), (1, 3))),
        "random_k": 8 * (3 + 2),
        "qsgd": sum(8 + -(-d * (1 + 3) // 8) for d in both),
        "rounding": sum(16 + -(-d * 3 // 8) for d in both),
        "sign": sum(8 + -(-d // 8) for d in both),
        "chain": sum(8 + 1 + by_hand.bits_of_places(k, d) for k, d in ((3, 6), (2, 3))),
    }
    for name, (ours, _) in RULES.items():
        result = run(SOFTMAX, fl.fedavg(lr=0.3, steps=1, compress=ours("none")), START, [[1]])
        assert result.costs.bytes_up == expected[name], name
        assert result.costs.bytes_down == 8 * 9
    down = run(SOFTMAX, fl.fedavg(lr=0.3, steps=1, compress_down=ft.compress.rounding(3)), START, [[1], [1, 2]])
    assert (down.costs.bytes_down, down.costs.bytes_up) == (3 * expected["rounding"], 3 * 8 * 9)

"""Frozen means frozen, and given weights are kept."""

from __future__ import annotations

import copy
import itertools
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import fedtempo as ft
from fedtempo import algorithms as known
from fedtempo.contracts import small_data
from fedtempo.errors import ConfigError, DataError, ModelError
from fedtempo.models.weights import is_untouched
from fedtempo.training.prepare import prepare


def data(**parts) -> ft.data.FederatedData:
    rng = np.random.default_rng(3)
    return ft.data.FederatedData.from_clients(
        [(rng.standard_normal((12, 6)), rng.integers(0, 4, 12)) for _ in range(4)], **parts
    )


def run(model, algorithm=None, **changes) -> ft.Result:
    given = {"data": data(), "rounds": 3, "batch_size": 4, "evaluation": None}
    return ft.run(model=model, algorithm=algorithm or known.fedavg(lr=0.1, steps=2), **{**given, **changes})


def start_of(result: ft.Result) -> dict[str, torch.Tensor]:
    return result.experiment.first_shared


def equal(a, b) -> bool:
    return all(torch.equal(a[n], b[n]) for n in a.keys() & b.keys()) and bool(a.keys() & b.keys())


# ------------------------------------------------------------------ frozen


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize(
    "algorithm",
    [
        known.fedavg(lr=0.1, steps=2),
        known.fednar(known.scaffold(lr=0.1, steps=2), weight_decay=0.3, max_norm=9.0),
        known.ditto(lr=0.1, steps=2),
        known.fedem(lr=0.1, steps=2, components=2),
        known.fedadam(lr=0.1, steps=2),
    ],
    ids=lambda a: a.name,
)
def test_a_frozen_body_does_not_move_by_a_bit(algorithm, backend):
    model = ft.models.mlp(6, [5], 4)
    model.body.requires_grad_(False)
    result = run(model, algorithm, backend=backend)
    first = start_of(result)
    frozen = {n for n in first if n.startswith("body.")}
    assert frozen and all(torch.equal(result.params[n], first[n]) for n in frozen)
    assert any(not torch.equal(result.params[n], first[n]) for n in first if n not in frozen)
    for client in range(4):
        own = result.client_state(client)
        assert all(torch.equal(own[n], first[n]) for n in frozen & own.keys())


def test_frozen_tensors_are_not_noised_nor_averaged_nor_sent_again():
    model = ft.models.mlp(6, [5], 4)
    model.body.requires_grad_(False)
    noised = run(model, aggregator=ft.robust.private_mean(1.0, 0.5), cohort=4)
    assert torch.equal(noised.params["body.1.weight"], start_of(noised)["body.1.weight"])
    assert not torch.equal(noised.params["head.weight"], start_of(noised)["head.weight"])
    result = run(model, cohort=4)
    head, body = 4 * (5 * 4 + 4), 4 * (6 * 5 + 5)
    first, second = (result.history[i].costs for i in (0, 1))
    assert first.bytes_down == 4 * (head + body) and first.bytes_up == 4 * head
    assert second.bytes_down == 4 * head and second.bytes_up == 4 * head


def test_what_goes_down_once_is_counted_at_each_clients_first_round_and_after_a_resume(tmp_path):
    model = ft.models.mlp(6, [5], 4)
    model.body.requires_grad_(False)
    settings = {"cohorts": [[0, 1], [1, 2], [0, 2]]}
    head, body = 4 * (5 * 4 + 4), 4 * (6 * 5 + 5)
    plain = run(model, **settings)
    assert [r.costs.bytes_down for r in plain.history] == [2 * (head + body), 2 * head + body, 2 * head]
    rounds = ft.train(
        model=model, algorithm=known.fedavg(lr=0.1, steps=2), data=data(), rounds=3, batch_size=4, evaluation=None,
        out=tmp_path / "run", **settings,
    )  # fmt: skip
    next(rounds)
    rounds.close()
    again = run(model, **settings, out=tmp_path / "run", resume=True)
    assert [r.costs for r in again.history] == [r.costs for r in plain.history]


def test_a_selector_over_frozen_tensors_alone_is_refused():
    model = ft.models.mlp(6, [5], 4)
    model.head.requires_grad_(False)
    with pytest.raises(ConfigError, match="not frozen"):
        run(model, known.fedrep(lr=0.1, head_steps=1, body_steps=1))


def test_statistics_of_a_frozen_batchnorm_move_as_in_torch():
    body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)).requires_grad_(False)
    model = nn.ModuleDict({"body": body, "head": nn.Linear(5, 4)})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = model["body"], model["head"]

        def forward(self, x):
            return self.head(self.body(x))

    result = run(Net())
    first = start_of(result)
    assert torch.equal(result.params["body.1.weight"], first["body.1.weight"])
    assert not torch.equal(result.params["body.1.running_mean"], first["body.1.running_mean"])


# ------------------------------------------------------------------ given weights


def test_our_own_model_as_constructed_is_drawn_from_the_seed():
    first, again, other = (run(ft.models.mlp(6, [5], 4), seed=seed) for seed in (1, 1, 2))
    assert equal(start_of(first), start_of(again)) and not equal(start_of(first), start_of(other))
    assert first.experiment.notes[0] == "first weights: drawn from the run's seed"
    assert is_untouched(ft.models.mlp(6, [5], 4)) and is_untouched(copy.deepcopy(ft.models.mlp(6, [5], 4)))
    assert is_untouched(ft.models.mlp(6, [5], 4).double())


def loaded() -> nn.Module:
    model = ft.models.mlp(6, [5], 4)
    model.load_state_dict({n: torch.full_like(t, 0.01) for n, t in model.state_dict().items()})
    return model


def loaded_with_what_was_there() -> nn.Module:
    model = ft.models.mlp(6, [5], 4)
    model.load_state_dict(copy.deepcopy(model.state_dict()))
    return model


def edited() -> nn.Module:
    model = ft.models.mlp(6, [5], 4)
    with torch.no_grad():
        model.head.bias[0] += 1.0
    return model


def with_another_head() -> nn.Module:
    model = ft.models.mlp(6, [5], 9)
    model.head = nn.Linear(5, 4)
    return model


def trained() -> nn.Module:
    model = ft.models.mlp(6, [5], 4)
    model(torch.ones(2, 6)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return model


@pytest.mark.parametrize(
    "make",
    [loaded, loaded_with_what_was_there, edited, with_another_head, trained, lambda: nn.Linear(6, 4)],
    ids=["loaded", "loaded the same", "edited", "another head", "trained", "a user's own"],
)
def test_weights_that_somebody_gave_are_kept(make):
    model = make()
    result = run(model, seed=5)
    assert equal(start_of(result), model.state_dict())
    assert result.experiment.notes[0].startswith("first weights: as the module came")
    drawn = run(model, seed=5, init="seed")
    assert not equal(start_of(drawn), model.state_dict())
    assert equal(start_of(drawn), start_of(run(model, seed=5, init="seed")))


def test_given_personal_tensors_are_kept_too():
    model = loaded()
    result = run(model, known.fedper(lr=0.1, steps=1), rounds=1, cohort=1)
    waiting = [c for c in range(4) if c not in result.history[0].clients]
    assert all(torch.equal(result.client_state(c)["head.weight"], model.head.weight) for c in waiting)
    drawn = run(ft.models.mlp(6, [5], 4), known.fedper(lr=0.1, steps=1), rounds=1, cohort=1)
    heads = [drawn.client_state(c)["head.weight"] for c in waiting]
    assert not torch.equal(heads[0], heads[1])


def test_a_function_is_called_on_the_seed_and_init_says_so():
    made = run(lambda: nn.Linear(6, 4), seed=3)
    assert equal(start_of(made), start_of(run(lambda: nn.Linear(6, 4), seed=3)))
    assert made.experiment.notes[0] == "first weights: made by the function given as model, on the run's seed"
    given = run(ft.models.mlp(6, [5], 4), init=loaded().state_dict())
    assert given.experiment.notes[0] == "first weights: given by init"


def from_the_system():
    model = nn.Linear(6, 4)
    model.weight.data = torch.from_numpy(np.random.default_rng().standard_normal((4, 6))).float()
    return model


def growing():
    sizes = itertools.count(5)
    return lambda: nn.Sequential(nn.Linear(6, size := next(sizes)), nn.Linear(size, 4))


@pytest.mark.parametrize("make, name", [(from_the_system, "weight"), (growing(), "0.weight")])
def test_a_function_that_makes_another_model_on_the_same_seed_is_refused(make, name):
    with pytest.raises(ModelError, match=f"must make the same model on the same seed.* Got another '{name}'"):
        run(make)


def test_a_module_that_a_function_hands_out_keeps_its_weights_and_its_type():
    model = loaded()
    before = copy.deepcopy(model.state_dict())
    result = run(lambda: model, known.fedper(lr=0.1, steps=1), rounds=1, cohort=1, dtype=torch.bfloat16)
    assert result.notes[0].startswith("first weights: as the module came")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    waiting = [c for c in range(4) if c not in result.history[0].clients]
    assert all(torch.equal(result.client_state(c)["head.weight"], model.head.weight.bfloat16()) for c in waiting)


def test_the_start_is_stored(tmp_path):
    run(loaded(), out=tmp_path / "run")
    with pytest.raises(ft.OutputError, match="start must be that of the stored run"):
        run(ft.models.mlp(6, [5], 4), out=tmp_path / "run", resume=True)


def test_init_seed_needs_rules_for_every_tensor():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(6, 4))

        def forward(self, x):
            return x @ self.w

    with pytest.raises(ModelError, match="init='seed' needs reset_parameters"):
        run(Bare(), init="seed")


# ------------------------------------------------------------------ sentences


def test_bare_errors_became_sentences():
    with warnings.catch_warnings(action="ignore"):  # torch says that this form is old
        compiled = torch.jit.trace(nn.Linear(6, 4), torch.zeros(1, 6))
    with pytest.raises(DataError, match=r"client must be an int in \[0, 4\). Got '3'"):
        data().client("3")
    with pytest.raises(ModelError, match=r"lazy layer with 'weight': call it once .* or give the class"):
        run(nn.LazyLinear(4))
    with pytest.raises(ModelError, match=r"an nn\.Module as it was written\. Got a compiled one"):
        run(compiled)
    with pytest.raises(
        ConfigError, match=r"the names of init_clients\[0\] must be only personal tensors \(here: none\)"
    ):
        run(nn.Linear(6, 4), init_clients={0: {"weight": torch.zeros(4, 6)}})

    @ft.named
    def mine(lr, steps=2):
        return known.fedavg(lr, steps)

    assert repr(mine(0.1)) == "mine(lr=0.1)"


def test_fedbn_without_batchnorm_says_so():
    result = run(ft.models.mlp(6, [5], 4), known.fedbn(lr=0.1, steps=1))
    assert any(note.startswith("fedbn: the model has no modules of type _BatchNorm") for note in result.notes)


class Branches(nn.Module):
    """What it computes depends on the data."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        return self.layer(x) * (2.0 if x.mean() > 0 else 1.0)


class Packed(nn.Module):
    """A recurrent layer on packed sequences."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.GRU(2, 3, batch_first=True), nn.Linear(3, 4)

    def forward(self, x):
        lengths = torch.full((len(x),), 3)
        packed = nn.utils.rnn.pack_padded_sequence(x.reshape(-1, 3, 2), lengths, batch_first=True)
        return self.head(self.layer(packed)[1][-1])


@pytest.mark.parametrize("make", [Branches, Packed])
def test_auto_falls_back_to_serial_and_says_so(make):
    model = make()
    result = run(model, backend="auto")
    assert result.experiment.backend.name == "serial"
    assert sum(note.startswith("backend: auto runs clients one by one") for note in result.notes) == 1
    assert result.digest() == run(model, backend="serial").digest()


def test_lazy_layers_of_a_function_take_their_shapes_from_the_data_and_their_weights_from_the_seed():
    def make() -> nn.Module:
        return nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(4))

    first = run(make)
    torch.randn(7)
    assert run(make).digest() == first.digest() != run(make, seed=1).digest()
    assert tuple(first.params["0.weight"].shape) == (5, 6)
    assert first.experiment.first_shared["1.running_mean"].abs().max() == 0


def test_first_weights_that_a_function_draws_with_numpy_are_on_the_runs_seed_too():
    def make() -> nn.Module:
        layer = nn.Linear(6, 4)
        layer.weight.data = torch.from_numpy(np.random.standard_normal((4, 6)))
        return layer

    before = np.random.get_state()[1].tolist()
    first = run(make)
    assert np.random.get_state()[1].tolist() == before
    np.random.random(3)
    assert run(make).digest() == first.digest() != run(make, seed=1).digest()


def test_an_error_in_the_users_function_is_a_sentence():
    with pytest.raises(ModelError, match="the model cannot be made: ZeroDivisionError: division by zero"):
        run(lambda: 1 / 0)
    with pytest.raises(ConfigError, match=r"out must be a path\. Got 3"):
        run(nn.Linear(6, 4), out=3)


def test_numpy_arrays_of_one_number_are_numbers():
    assert repr(known.fedavg(lr=np.array(0.5), steps=np.array(2))) == "fedavg(lr=0.5, steps=2)"


class Handle(nn.Linear):
    """A model that holds what nobody can copy."""

    def __init__(self) -> None:
        super().__init__(6, 4)
        self.held = (number for number in range(3))


def test_a_model_that_cannot_be_copied_is_a_sentence():
    # Both a class and a finished module: the line says which attribute to keep elsewhere.
    for given in (Handle, Handle()):
        with pytest.raises(ModelError, match=r"one that copy\.deepcopy can copy\. Got: .*generator.*attribute 'held'"):
            run(given)


def test_complex_numbers_are_refused_and_not_cut():
    with pytest.raises(ModelError, match=r"real tensors\. Got complex numbers in 'weight'"):
        run(lambda: nn.Linear(6, 4, dtype=torch.complex64))


def test_a_model_in_float64_is_told_what_it_trains_in():
    for dtype, said in ((torch.float32, True), (torch.float64, False)):
        experiment = prepare(
            model=nn.Linear(6, 4).double(),
            data=small_data(),
            algorithm=ft.algorithms.fedavg(lr=0.1, steps=1),
            rounds=1,
            dtype=dtype,
        )
        assert any("came in float64 and trains in torch.float32" in note for note in experiment.notes) == said

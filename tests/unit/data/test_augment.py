"""Augmentation: the same bits on every backend, no padding seen, randomness from seed, round, client and step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import fedtempo as ft
from fedtempo.data import augment
from fedtempo.randomness import row_keys, states_of_generators

IMAGES = torch.arange(2 * 3 * 4 * 4, dtype=torch.float64).reshape(2, 3, 4, 4)


def images(clients: int = 4) -> ft.data.FederatedData:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((n, 1, 8, 8)), rng.integers(0, 3, n)) for n in (7, 12, 5, 9)[:clients]]
    return ft.data.FederatedData.from_clients(rows)


def run(backend: str, how: object, **settings: object) -> ft.Result:
    defaults = {
        "model": ft.models.cnn((1, 8, 8), 3, channels=(2,), hidden=4),
        "data": images(),
        "algorithm": ft.algorithms.fedavg(lr=0.1, epochs=2),
        "rounds": 3,
        "cohort": 3,
        "batch_size": 4,
        "dtype": torch.float64,
        "evaluation": None,
        "block": 3,
    }
    return ft.run(**{**defaults, "backend": backend, "augment": how, **settings})


def flipped(batch: dict[str, Tensor], key: Tensor) -> dict[str, Tensor]:
    """A user's own: it sees one client's true rows, and no more."""
    assert len(batch["x"]) in (4, 3, 1) and set(batch) == {"x", "y"}
    return {**batch, "x": batch["x"].flip(-1) if int(key) % 2 else batch["x"]}


ALIKE = pytest.mark.slow("drawn the same way as another one that runs every time")


@pytest.mark.parametrize(
    "how",
    [
        augment.random_crop(2) | augment.random_flip(),
        pytest.param(augment.colour(), marks=ALIKE),
        pytest.param(augment.noise(0.1), marks=ALIKE),
        augment.from_transform(lambda image: image + torch.rand(())),
        pytest.param(flipped, marks=ALIKE),
    ],
    ids=["crop and flip", "colour", "noise", "transform", "own"],
)
def test_every_backend_sees_the_same_batches(how: object) -> None:
    serial, together, workers = run("serial", how), run("vectorised", how), run("serial", how, workers=2)
    assert serial.digest() == workers.digest()
    assert ft.contracts.distance(serial, together) < 1e-12
    assert serial.digest() != run("serial", None).digest()


def test_randomness_follows_seed_round_client_and_step() -> None:
    drawn = {
        int(augment.step_keys(seed, np.array([client]), (round_number,), step)[0])
        for seed in (0, 1)
        for client in (0, 1)
        for round_number in (0, 1)
        for step in (0, 1)
    }
    assert len(drawn) == 16


def test_a_rows_key_does_not_depend_on_how_many_rows_there_are() -> None:
    key = torch.tensor([5])
    assert torch.equal(row_keys(key, 3)[0], row_keys(key, 7)[0, :3])


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    done = augment.random_crop(1).one({"x": IMAGES}, torch.tensor(3))["x"]
    padded = torch.nn.functional.pad(IMAGES, (1,) * 4)
    for row in range(2):
        windows = [padded[row, :, i : i + 4, j : j + 4] for i in range(3) for j in range(3)]
        assert any(torch.equal(done[row], window) for window in windows)


def test_a_flip_mirrors_about_half_of_the_rows() -> None:
    many = torch.arange(4.0).expand(1000, 1, 1, 4)
    done = augment.random_flip().one({"x": many}, torch.tensor(1))["x"]
    mirrored = (done[:, 0, 0, 0] == 3).sum().item()
    assert 430 < mirrored < 570
    assert torch.equal(augment.random_flip(0.0).one({"x": many}, torch.tensor(1))["x"], many)
    assert torch.equal(augment.random_flip(1.0).one({"x": many}, torch.tensor(1))["x"], many.flip(-1))


def test_noise_has_the_deviation_asked_for() -> None:
    done = augment.noise(0.5).one({"x": torch.zeros(400, 100, dtype=torch.float64)}, torch.tensor(7))["x"]
    assert done.std().item() == pytest.approx(0.5, rel=0.02)
    assert abs(done.mean().item()) < 0.01


def test_features_are_not_reused_where_inputs_change() -> None:
    settings = {"algorithm": ft.algorithms.pflego(head_lr=0.1, server_lr=0.1, steps=4, full_batch=False)}
    plain, changed = run("serial", None, **settings), run("serial", augment.noise(0.1), **settings)
    assert changed.costs.flops > plain.costs.flops


def test_a_resumed_run_sees_the_same_batches(tmp_path) -> None:  # type: ignore[no-untyped-def]
    how = augment.random_crop(2) | augment.random_flip()
    whole = run("serial", how)
    rounds = ft.train(**_settings(how), out=tmp_path / "run")
    next(rounds)
    rounds.close()
    assert run("serial", how, out=tmp_path / "run", resume=True).digest() == whole.digest()


def _settings(how: object) -> dict[str, object]:
    return {
        "model": ft.models.cnn((1, 8, 8), 3, channels=(2,), hidden=4),
        "data": images(),
        "algorithm": ft.algorithms.fedavg(lr=0.1, epochs=2),
        "rounds": 3,
        "cohort": 3,
        "batch_size": 4,
        "dtype": torch.float64,
        "evaluation": None,
        "block": 3,
        "backend": "serial",
        "augment": how,
    }


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        (lambda: augment.random_crop(0), "padding must be an int >= 1"),
        (lambda: augment.random_flip(2.0), "probability must be a number in"),
        (lambda: run("serial", 3), "augment must be an augmentation or a function"),
    ],
)
def test_wrong_settings_are_named(how, rule) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ft.ConfigError, match=rule):
        how()


class RandomErasing(torch.nn.Module):
    """In the form of torchvision's v2: a module of any number of inputs, whose draws come from torch's generator."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, *inputs: Tensor) -> Tensor:
        (image,) = inputs
        if torch.rand(1) >= self.p:
            return image
        top = int(torch.randint(0, image.shape[-2], size=(1,)))
        return torch.cat([image[..., :top, :], torch.zeros_like(image[..., top:, :])], dim=-2)


class Compose(torch.nn.Module):
    def __init__(self, transforms: list[torch.nn.Module]) -> None:
        super().__init__()
        self.transforms = transforms

    def forward(self, *inputs: Tensor) -> Tensor:
        (image,) = inputs
        for transform in self.transforms:
            image = transform(image)
        return image


def numpys(image: Tensor) -> Tensor:
    return image + float(np.random.random())


@pytest.mark.parametrize(
    "how",
    [Compose([RandomErasing(0.7), RandomErasing(0.5)]), pytest.param(augment.from_transform(numpys), marks=ALIKE)],
)
def test_transforms_of_one_image_give_the_same_bits_everywhere(how: object) -> None:
    serial, again, workers = run("serial", how), run("serial", how), run("serial", how, workers=2)
    assert serial.digest() == again.digest() == workers.digest() != run("serial", None).digest()
    assert ft.contracts.distance(serial, run("vectorised", how)) < 1e-12


def test_transforms_leave_the_programs_generators_as_they_were() -> None:
    before = states_of_generators()
    augment.from_transform(lambda image: numpys(image) + torch.rand(())).one({"x": IMAGES}, torch.tensor(1))
    assert states_of_generators() == before


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        (lambda batch: batch, r"augment must be a function of \(batch, key\), .* Got .*TypeError"),
        (lambda batch, key: batch["x"], "must return a batch with the columns x, y"),
        (
            lambda batch, key: {**batch, "x": batch["x"] + torch.randn_like(batch["x"])},
            "augment must be a function that draws from its key alone: torch.Generator",
        ),
        (lambda batch, key: {"x": batch["x"]}, "must return a batch with the columns x, y"),
        (lambda batch, key: {**batch, "x": batch["x"][:1]}, r"each a tensor with 4 rows. Got \{'x': \(1, 1, 8, 8\)"),
        (augment.from_transform(lambda image: image[..., : 1 + int(torch.randint(0, 8, ()))]), "tensors of one shape"),
        (augment.from_transform(lambda image: 3), "must return tensors of one shape. Got int"),
    ],
)
def test_what_no_augmentation_returns_is_named_before_training(how: object, rule: str) -> None:
    with pytest.raises(ft.ConfigError, match=rule):
        run("serial", how)


@pytest.mark.parametrize("backend", ["serial", "vectorised"])
@pytest.mark.parametrize("batches", [{"batches": "in_order"}, {"batch_size": None}, {"batches": "epochs"}])
def test_an_augmentation_may_write_over_its_batch(backend: str, batches: dict[str, object]) -> None:
    def written(batch: dict[str, Tensor], key: Tensor) -> dict[str, Tensor]:
        batch["x"].mul_(0.5)
        return batch

    def returned(batch: dict[str, Tensor], key: Tensor) -> dict[str, Tensor]:
        return {**batch, "x": batch["x"] * 0.5}

    ends = [run(backend, how, progress=False, **batches) for how in (written, returned)]
    assert ends[0].digest() == ends[1].digest()

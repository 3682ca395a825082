"""A trial of the model before training: it runs on the data, its outputs fit, and what it draws can be repeated."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from fedtempo.client.draws import seeded_draws
from fedtempo.client.network import inputs_of, tensors_of
from fedtempo.client.phase import Phase
from fedtempo.data.augment import Augment
from fedtempo.errors import ConfigError, DataError, FedTempoError, ModelError, first_line, require
from fedtempo.evaluation.protocol import Evaluation
from fedtempo.evaluation.serving import served_phases
from fedtempo.federation.federation import Federation
from fedtempo.metrics.outputs import of_numbers
from fedtempo.params import Params, all_finite
from fedtempo.randomness import generators_kept, states_of_generators
from fedtempo.tasks import IGNORED, Batch, Meaning, meaning_of
from fedtempo.training.checks.purity import (
    MASKS_TRIED,
    alike,
    check_purity,
    gradients_are_independent,
    is_head_of_body,
    tried,
)
from fedtempo.training.checks.repeats import repeated
from fedtempo.training.checks.scoring import check_loss_fits, check_own_pieces
from fedtempo.training.checks.settings import MOST

PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class ModelFacts(NamedTuple):
    """What a trial on a few rows shows about a model."""

    draws_masks: bool
    pads_batches: bool
    pads_scoring: bool
    head_of_body: bool
    outputs_are: Meaning
    outputs: torch.Size
    targets: torch.Size
    next_tokens: bool
    """Whether the loss that the model makes compares each token with the one after it."""


def check_model(federation: Federation, evaluation: Evaluation | None = None, given: object = None) -> ModelFacts:
    """The model runs on the data, its outputs fit the labels, and the loss is a loss. `given` is what the user gave."""
    _check_pieces(federation)
    full = federation.problem.client_rows(int(federation.problem.data.clients[0]))
    # Copies, since a model or a loss may write over them.
    rows = {n: t[:4].clone() if len(t) > 1 else t.expand(2, *t.shape[1:]).contiguous() for n, t in full.items()}
    params = tensors_of(federation.problem.model, federation.problem.dtype, federation.problem.device)
    if not all_finite(params.values()):
        raise ModelError("the model's first weights must be finite. Got NaN or infinity.")
    weights = set(federation.problem.network.parameters)
    leaves = {n: p.clone().requires_grad_(n in weights and p.is_floating_point()) for n, p in params.items()}
    if federation.problem.augment is not None:
        _check_augment(federation.problem.augment, rows)
    try:
        outputs = federation.problem.network.forward(leaves, rows)
    except FedTempoError:
        raise
    except Exception as error:
        shapes = {n: tuple(t.shape) for n, t in rows.items() if not n.startswith("_")}
        what = f"{first_line(error)}{_whole_numbers(rows) if 'dtype' in str(error) else ''}"
        raise ModelError(f"the model does not run on a batch of shapes {shapes}: {what}") from error
    _check_left_alone(rows)
    _check_outputs(federation, outputs, rows)
    _check_gradient(outputs, [leaf for leaf in leaves.values() if leaf.requires_grad])
    masks = _draws_masks(federation, params, rows)
    _check_prediction(federation, params, rows)
    check_own_pieces(federation, params, rows)
    check_purity(federation.problem.network, [federation.problem.model, given], params, rows)
    independent = federation.problem.task.rows_apart and _rows_are_independent(federation, params, rows, True, masks)
    if not independent:
        _check_single_rows(federation, params, rows, evaluation)
    _check_given_clients(federation)
    predicts_apart = _rows_are_independent(federation, params, rows, False, masks)
    split = is_head_of_body(federation.problem.network, params, rows, masks)
    shifts = federation.problem.task.own and _ignores_first_token(federation, params, rows)
    if not shifts:
        _warn_of_copied_inputs(rows)
    meaning, targets = meaning_of(federation.problem.task, outputs.shape, rows.get("y")), rows.get("y", outputs).shape
    return ModelFacts(masks, independent, predicts_apart, split, meaning, outputs.shape, targets, shifts)


def _ignores_first_token(federation: Federation, params: Params, rows: Batch) -> bool:
    """Whether the model's own loss never reads the first token of its labels: a causal language model shifts them."""
    labels = rows["y"]
    if not federation.problem.task.classes or labels.dim() != 2 or labels.shape[1] < 2:
        return False
    other = labels.clone()
    other[:, 0] = torch.where(labels[:, 0] == 0, 1, 0)
    with torch.no_grad():
        network, task = federation.problem.network, federation.problem.task
        first, second = (network.loss(task, {**params}, {**rows, "y": y}) for y in (labels, other))
    return bool(torch.equal(first, second))


def _warn_of_copied_inputs(rows: Batch) -> None:
    """Targets that are the tokens of the same places teach a model to copy its input, with a perplexity near 1."""
    targets = rows.get("y")
    if targets is None or targets.dim() < 2 or targets.is_floating_point() or targets.dtype == torch.bool:
        return
    counted = targets != IGNORED
    for name, values in inputs_of(rows).items():
        if values.shape == targets.shape and bool(counted.any()) and torch.equal(values[counted], targets[counted]):
            warnings.warn(
                f"the targets y equal the input {name!r}, so the model learns to copy its input. "
                "Say loss='next_token' to train a causal language model on the token after each place.",
                UserWarning,
                stacklevel=2,
            )


def _whole_numbers(rows: Batch) -> str:
    """A hint for inputs that are no floats, which layers such as `nn.Linear` do not take."""
    name = next((n for n, values in inputs_of(rows).items() if not values.is_floating_point()), None)
    return "" if name is None else f" ({name!r} has {rows[name].dtype}; layers that multiply need floats in the data)"


def _check_left_alone(rows: Batch) -> None:
    """Nothing was written over a copy of some rows: a batch may be the stored rows themselves."""
    written = [name for name, tensor in rows.items() if tensor._version]
    if written:
        rule = "leave its inputs as they are: x = x * 2 and not x *= 2, no inplace=True in its first layer"
        raise ModelError(f"the model must {rule}. Got a write into {written[0]!r}.")


def _check_augment(augment: Augment, rows: Batch) -> None:
    """The augmentation can be applied to some rows, and does the same to them again."""
    device = next(iter(rows.values())).device
    try:
        drawn = _draws(lambda: augment.one(rows, torch.tensor(0, device=device)))
    except FedTempoError:
        raise
    except Exception as error:  # it may be the user's code
        what = f"{type(error).__name__}: {first_line(error)}"
        rule = "a function of (batch, key), or an nn.Module of one image, that runs on the data"
        raise ConfigError(f"augment must be {rule}. Got {augment!r}: {what}.") from error
    # A transform of one image knows no key, so it is seeded; a function has one, and would not repeat without it.
    reason = "a function that draws from its key alone: torch.Generator().manual_seed(int(key) & (2**63 - 1))"
    require(not drawn, "augment", reason, augment)
    first, _, again = (augment.one(rows, torch.tensor(key, device=device)) for key in (0, 1, 0))
    repeats = all(repeated(first[name], again[name]) for name in first)
    require(repeats, "augment", "a function that remembers nothing: the same of the same batch and key", augment)


def _check_pieces(federation: Federation) -> None:
    """What the parts of a federation must be before the model can be tried."""
    phases, size = federation.algorithm.phases, federation.problem.batching.size
    holds = isinstance(phases, tuple) and bool(phases) and all(isinstance(p, Phase) for p in phases)
    require(holds, "algorithm.phases", "a tuple of one or more Phases", phases)
    dtype, model = federation.problem.dtype, federation.problem.model
    require(dtype in PRECISIONS, "dtype", "one of " + ", ".join(map(str, PRECISIONS)), dtype)
    require(size is None or size <= MOST, "batch_size", f"None or an int in [1, {MOST}]", size)
    if not any(True for _ in model.parameters()):
        raise ModelError(f"the model must have parameters to train. Got {type(model).__name__} with none.")
    if federation.problem.data.outputs is not None:
        _check_own_classes(federation)
    _ = federation.program  # binds every phase to the model: a selector that matches nothing is found here


def _check_own_classes(federation: Federation) -> None:
    """Where every client has its own number of classes, it has one for each client and the labels keep to it."""
    data, outputs = federation.problem.data, federation.problem.data.outputs
    assert outputs is not None
    if len(outputs) != len(data):
        raise DataError(f"outputs must hold one number per client ({len(data)}). Got {len(outputs)}.")
    for client in range(len(data)):
        labels = [data.columns["y"][data.positions(client, part)] for part in ("train", "validation", "test")]
        highest = max((int(each.max()) for each in labels if len(each)), default=0)
        if outputs[client] <= highest:
            raise DataError(
                f"outputs of client {data.name_of(client)} must be above its highest label, {highest}. "
                f"Got {outputs[client]}."
            )


def _check_given_clients(federation: Federation) -> None:
    """Personal tensors given for particular clients have the names and shapes of theirs, and are numbers."""
    if not federation.given_clients:
        return
    shared = federation.first_shared()
    plain = replace(federation, given_clients=None)
    for client, given in federation.given_clients.items():
        own = plain.first_personal(client, shared)
        for name, value in given.items():
            field = f"init_clients[{client}][{name!r}]"
            known = f"only personal tensors (here: {', '.join(own) or 'none'})"
            require(name in own, f"the names of init_clients[{client}]", known, name)
            require(isinstance(value, torch.Tensor), field, "a tensor", value)
            shape = tuple(own[name].shape)
            require(tuple(value.shape) == shape, field, f"of shape {shape}", tuple(value.shape))
            require(all_finite([value]), field, "finite", "NaN or infinity")


def _check_single_rows(federation: Federation, params: Params, rows: Batch, evaluation: Evaluation | None) -> None:
    """BatchNorm cannot train on one row; say so now if some client's last batch would be one."""
    single = {n: t[:1] for n, t in rows.items()}
    try:
        federation.problem.network.forward({n: t.clone() for n, t in params.items()}, single, train=True)
    except ValueError as error:
        trained = [
            (c, stage.phase) for c in federation.problem.data.clients.tolist() for stage in federation.program.stages
        ]
        for client, phase in [*trained, *_fine_tuned_newcomers(federation, evaluation)]:
            batching = phase.batching(federation.problem.batching)
            _, count = phase.rows(int(federation.problem.sizes[client]))
            if count and batching.length(count, batching.per_epoch(count) - 1) == 1:
                name = federation.problem.data.name_of(client)
                raise ModelError(
                    f"the model cannot train on a batch of one row, and client {name} "
                    f"would have one ({count} rows, batch_size {batching.size}): {first_line(error)}"
                ) from error


def _fine_tuned_newcomers(federation: Federation, evaluation: Evaluation | None) -> list[tuple[int, Phase]]:
    """The new clients with the phases that they train in before they are scored."""
    if evaluation is None:
        return []
    phases = served_phases(federation, evaluation, newcomers=True).phases
    trains = [phase for phase in phases if phase.length.units(federation.problem.now(0, 1.0))]
    return [(client, phase) for client in federation.problem.data.held_out.tolist() for phase in trains]


def _check_outputs(federation: Federation, outputs: torch.Tensor, rows: Batch) -> None:
    """One output per row and, for classes, one entry for each of them; a loss that the weights can lower."""
    task, count = federation.problem.task, len(next(iter(rows.values())))
    shape = f"shape {tuple(outputs.shape)} for {count} rows"
    if task.rows_apart and (outputs.dim() == 0 or len(outputs) != count):
        raise ModelError(f"the model's output must have one entry per row. Got {shape}.")
    if not outputs.is_floating_point():
        raise ModelError(f"the model's output must be floating-point. Got {outputs.dtype}.")
    own_heads = federation.problem.data.outputs is not None and bool(federation.personal_names)
    if task.classes:
        _check_classes(federation, outputs, rows, own_heads)
    if not own_heads:
        check_loss_fits(federation, outputs, rows)


def _check_gradient(outputs: torch.Tensor, weights: list[torch.Tensor]) -> None:
    """Torch can go back through the model: gradient checkpointing, for one, looks for weights inside the module."""
    try:
        torch.autograd.grad(outputs.sum(), weights, allow_unused=True)
    except Exception as error:
        rule = "trainable with weights that come from outside, as in torch.func.functional_call"
        raise ModelError(f"the model must be {rule} (no gradient checkpointing). Got: {first_line(error)}.") from error


def _check_classes(federation: Federation, outputs: torch.Tensor, rows: Batch, own_heads: bool) -> None:
    labels = federation.problem.data.columns["y"][:]  # all of them, also of a column that is read row by row
    lowest, highest = int(np.where(labels == IGNORED, 0, labels).min()), int(labels.max())
    tokens = federation.problem.task.name in ("language", "next_token")
    fits = outputs.shape[:-1] == rows["y"].shape and outputs.dim() >= (3 if tokens else 2)
    classes = outputs.shape[-1] if fits else 0
    if lowest < 0 or (highest >= classes and not own_heads):
        if fits and len(np.unique(labels[labels != IGNORED])) <= classes:
            hint = " Number the classes from 0: np.unique(y, return_inverse=True), for all clients at once."
        else:
            hint = _hint_by_shape(outputs.shape, rows["y"].shape, tokens, (lowest, highest) == (0, 1))
        raise ModelError(
            f"the model's output must have one entry per class: labels of shape {tuple(rows['y'].shape)} "
            f"run from {lowest} to {highest}, the output has shape {tuple(outputs.shape)}.{hint}"
        )


def _hint_by_shape(outputs: torch.Size, labels: torch.Size, tokens: bool, zeros_and_ones: bool) -> str:
    """What the user may have meant by outputs and labels of these shapes."""
    if labels[1:] == (1,) and len(outputs) == 2 and outputs[1] > 1:
        return " Give the labels without their second axis: y[:, 0]."
    if tokens and len(outputs) > 2 and outputs[:1] + outputs[2:] == labels:
        return " Classes come last: return outputs.movedim(1, -1), or say loss=F.cross_entropy."
    # Zeros and ones, and one output for each of them: several labels a row, or one yes or no.
    logits = zeros_and_ones and not of_numbers(outputs, labels)
    return " Say loss='multilabel' if each output is the logit of a label." if logits else ""


def _draws_masks(federation: Federation, params: Params, rows: Batch) -> bool:
    """Whether training draws random numbers; those that no seed of ours can reach are refused."""
    # Outputs do not tell: a mask over a few numbers often comes out the same twice. The generators' states do.
    if not _draws(lambda: _training_output(federation, params, rows)):
        return federation.problem.network.dropout
    with seeded_draws(torch.zeros((), dtype=torch.int64, device=federation.problem.device)):
        others = _draws(lambda: _training_output(federation, params, rows))
    if others:
        rule = "by dropout, torch.rand, randn, bernoulli or their like, which a seed can repeat"
        raise ModelError(f"the model must draw random numbers {rule}. Got others.")
    return True


def _check_prediction(federation: Federation, params: Params, rows: Batch) -> None:
    """The same rows get the same outputs: scores of a model that draws while it predicts would not repeat."""
    if _draws(lambda: federation.problem.network.forward(params, rows)):
        rule = "without random numbers: nn.Dropout, or F.dropout(x, p, training=self.training)"
        raise ModelError(f"the model must predict {rule}. Got draws in evaluation mode.")


def _draws(call: Callable[[], object]) -> bool:
    """Whether a call takes numbers from a generator of torch, numpy or Python. All are left as they were."""
    with generators_kept():
        before = states_of_generators()
        call()
        return states_of_generators() != before


def _training_output(federation: Federation, params: Params, rows: Batch) -> torch.Tensor:
    return tried(federation.problem.network, params, rows, True)[0]


def _rows_are_independent(federation: Federation, params: Params, rows: Batch, train: bool, masks: bool) -> bool:
    """Whether a row's output, and every buffer, stays the same beside other rows. With BatchNorm none does."""
    if train and any(isinstance(m, _BatchNorm) for m in federation.problem.model.modules()):
        return False
    network, more = federation.problem.network, {n: torch.cat([t, _unlike(t[:1])]) for n, t in rows.items()}
    # A row's masks do not depend on the rows after it, unless rows are in the second place where the model drops out.
    # A few masks are tried, because one may come out the same by chance.
    for key in range(MASKS_TRIED if train and masks else 1):
        with seeded_draws(torch.tensor(key, device=federation.problem.device)):
            (alone, left), (beside, written) = (tried(network, params, batch, train) for batch in (rows, more))
        if alone.dim() == 0 or len(alone) != len(next(iter(rows.values()))):
            return False
        if not alike(alone, beside[: len(alone)]) or not all(alike(left[n], written[n]) for n in network.buffers):
            return False
    return not train or gradients_are_independent(network, params, rows, more)


def _unlike(row: torch.Tensor) -> torch.Tensor:
    return row * 1.5 + 0.5 if row.is_floating_point() else row

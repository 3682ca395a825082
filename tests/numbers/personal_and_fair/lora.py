"""FedSA-LoRA, FFA-LoRA and FedEx-LoRA in numpy: one adapted layer W + s B A on rows, softmax outputs."""

import numpy as np

from tests.numbers.personal_and_fair.network import Arrays, Rows, average, cross_entropy, gradient, plus

A, B, BASE = "lora_A.default.weight", "lora_B.default.weight", "base_layer.weight"


def loss(p: Arrays, rows: Rows, scale: float) -> np.ndarray:
    return cross_entropy(rows[0] @ (p[BASE] + scale * p[B] @ p[A]).T + p["base_layer.bias"], rows[1])


def trained(p: Arrays, rows: Rows, scale: float, names: tuple[str, ...], lr: float, steps: int) -> Arrays:
    for _ in range(steps):
        p = plus(p, gradient(lambda q: loss(q, rows, scale), p, names), -lr)
    return p


def federated(method: str, clients: list[Rows], x: Arrays, cohorts: list[list[int]], scale, lr, steps):
    """The shared model, and the B that each client keeps under FedSA."""
    own = {i: np.zeros_like(x[B]) for i in range(len(clients))}
    for cohort in cohorts:
        models = []
        for i in cohort:
            first = {**x, B: own[i]} if method == "fedsa_lora" else x
            models.append(trained(first, clients[i], scale, (B,) if method == "ffa_lora" else (A, B), lr, steps))
            own[i] = models[-1][B]
        weights = [len(clients[i][1]) for i in cohort]
        new = average(models, weights)
        if method == "fedex_lora":
            exact = average([{"product": m[B] @ m[A]} for m in models], weights)["product"]
            new[BASE] = x[BASE] + scale * (exact - new[B] @ new[A])
        x = {**new, B: x[B]} if method == "fedsa_lora" else new
    return x, own

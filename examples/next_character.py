"""A next-character model whose clients train with AdamW and keep its moments between rounds.

Every client writes in a style of its own; the score is accuracy over characters, and perplexity beside it.
Run: python examples/next_character.py     FEDTEMPO_QUICK=1 makes it take seconds.
"""

import os

import numpy as np
import torch
from torch import Tensor, nn

import fedtempo as ft

QUICK = "FEDTEMPO_QUICK" in os.environ
LETTERS, LENGTH = "abcdefghijklmnopqrstuvwxyz .", 16
STYLES = (
    "the sea was calm and the ship went on to the far harbour. ",
    "we sum the losses and step along the mean of all gradients. ",
    "add the flour to the milk and stir until it is smooth. ",
)


class NextCharacter(nn.Module):
    """A convolution over the characters so far."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), 16)
        self.memory = nn.Conv1d(16, 48, kernel_size=5)
        self.head = nn.Linear(48, len(LETTERS))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the next character at every place, from the five up to it; of shape (rows, places, letters)."""
        seen = nn.functional.pad(self.letters(x).transpose(1, 2), (4, 0))
        return self.head(torch.relu(self.memory(seen)).transpose(1, 2))


def client(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows of the client's text, and the same windows one character on."""
    text = STYLES[number % len(STYLES)] * 4
    codes = np.array([LETTERS.index(letter) for letter in text])
    starts = np.random.default_rng(number).integers(0, len(codes) - LENGTH - 1, rows)
    windows = codes[starts[:, None] + np.arange(LENGTH + 1)]
    return windows[:, :-1], windows[:, 1:]


clients = [client(number, 20 if QUICK else 60) for number in range(6 if QUICK else 30)]
result = ft.run(
    model=NextCharacter,
    data=ft.data.FederatedData.from_clients(clients, test=0.25),
    algorithm=ft.algorithms.fedavg(lr=0.01, steps=5, optimizer=ft.optimizers.adamw(weight_decay=0.01, state="keep")),
    rounds=2 if QUICK else 30,
    cohort=0.5,
    loss="language",
    evaluation=ft.Evaluation(steps=2),
)
print(result.table())
after = result.scores.existing_after.summary("perplexity")
print(f"perplexity after fine-tuning: {after['mean']:.2f} (of {len(LETTERS)} characters)")

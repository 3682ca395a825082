"""A folder of images that need not fit into memory, with augmentation. Images are decoded when a batch needs them.

Writes small PNG files in the layout folder/client/label/image.png first; put your own folder in their place.
Run: python examples/images_lazily.py     FEDTEMPO_QUICK=1 makes it take seconds.
"""

import os
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from PIL import Image

import fedtempo as ft

QUICK = "FEDTEMPO_QUICK" in os.environ
SIZE = 16


def write_images(folder: Path, clients: int, each: int) -> None:
    """Discs and bars; every client has a lamp of its own colour."""
    rng = np.random.default_rng(0)
    down, across = np.mgrid[:SIZE, :SIZE]
    for client in range(clients):
        lamp = rng.uniform(0.5, 1.0, 3)
        for number in range(each):
            label = ("disc", "bar")[number % 2]
            y, x = rng.uniform(5, 11, 2)
            shape = (down - y) ** 2 + (across - x) ** 2 < 16 if label == "disc" else abs(down - y) < 2
            pixels = (shape[..., None] * 180 + rng.uniform(0, 70, (SIZE, SIZE, 1))) * lamp
            place = folder / f"camera{client}" / label
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.png")


folder = Path(mkdtemp())
write_images(folder, clients=6 if QUICK else 20, each=20 if QUICK else 60)

# At most so many bytes of decoded images stay in memory, however large the folder is.
cache = 20_000 if QUICK else 200_000
table = ft.data.from_images(folder, layout=("client", "label"), cache_bytes=cache)
images = table.columns["x"]
print(f"{len(images)} images are {images.nbytes:,} bytes once decoded; at most {cache:,} are kept")

augment = ft.data.augment
result = ft.run(
    model=ft.models.cnn((3, SIZE, SIZE), 2, channels=(4, 8), hidden=16),
    data=table.split(new_clients=2, seed=0),
    algorithm=ft.algorithms.feddecay(lr=0.1, beta=0.9, steps=5),
    rounds=2 if QUICK else 25,
    cohort=0.5,
    batch_size=16,
    augment=augment.chain(augment.random_crop(2), augment.random_flip(), augment.colour()),
    evaluation=ft.Evaluation(every=2 if QUICK else 5, steps=2, lr=0.01),
)
print(result.table())
print(f"in memory at the end: {images.cached_bytes:,} bytes")

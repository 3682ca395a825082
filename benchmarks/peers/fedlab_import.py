"""Makes FedLab importable beside any torch. Import this before FedLab."""

from __future__ import annotations

import sys

import torch

try:
    import torchvision
except RuntimeError:
    # FedLab imports torchvision for data sets that are not used here. A torchvision built for another torch still
    # imports if the two operators that its Python half looks up are declared.
    for module in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[module]
    declared = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        declared.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401

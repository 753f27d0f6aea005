"""What an independent implementation says, written by `make_golden.py`, as tensors of float64."""

import json
from pathlib import Path
from typing import Any

import torch

__all__ = ["GOLDEN", "INPUTS"]


def _tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tensors(inner) for name, inner in value.items()}
    if isinstance(value, list):
        tensor = torch.tensor(value)
        return tensor.double() if tensor.is_floating_point() else tensor
    return value


GOLDEN = _tensors(json.loads((Path(__file__).parent / "golden.json").read_text(encoding="utf-8")))
INPUTS = GOLDEN["inputs"]

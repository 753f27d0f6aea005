"""References with numbers of torch; those of numpy and others are in tests/test_types.py."""

import pytest
import torch

from rlvr.types import Task


@pytest.mark.parametrize(
    ("given", "plain_value"),
    [
        (torch.tensor(0.1), 0.1),
        (torch.tensor(8), 8),
        (torch.tensor(0.1, dtype=torch.bfloat16), 0.1),
    ],
)
def test_a_reference_has_pythons_own_numbers(given, plain_value):
    """A bfloat16's 0.1 means 0.1."""
    assert repr(Task("t", "p", given).reference) == repr(plain_value)

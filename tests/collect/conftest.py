"""Policies as fixtures."""

from tests.policies import policy

__all__ = ["policy"]

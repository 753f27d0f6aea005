"""Policies as fixtures."""

from tests.policies import fresh, full_logprobs, policy

__all__ = ["fresh", "full_logprobs", "policy"]

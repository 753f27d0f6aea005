"""How far two distributions over a vocabulary are apart, in float64: what distillation lowers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlvr.algo.judge.dual import Float64s

__all__ = ["divergence"]


def divergence(policy: Any, teacher: Any, beta: float, top_k: int | None = None) -> Float64s:
    """The generalised Jensen-Shannon divergence (GKD, arXiv:2306.13649, sec. 3): M = β P + (1 - β)
    Q, β KL(P ‖ M) + (1 - β) KL(Q ‖ M); KL(P ‖ Q) for β = 0, KL(Q ‖ P) for β = 1.

    Args:
        policy: log-probabilities Q, [N, V].
        teacher: log-probabilities P, [N, V].
        beta: β.
        top_k: compare the teacher's k likeliest words, and all others as one; None for all.

    Returns:
        One number for each of the N tokens.
    """
    return np.array(
        [
            _divergence(_few(q, p, top_k), _few(p, p, top_k), beta)
            for q, p in zip(policy, teacher, strict=True)
        ]
    )


def _few(logprobs: object, teacher: object, k: int | None) -> Float64s:
    """Probabilities of the teacher's k likeliest words, and of all others together."""
    probabilities = np.exp(np.asarray(logprobs, float))
    if k is None or k >= len(probabilities):
        return probabilities
    # Stable, so that of equal likelihoods the lower index comes first.
    best = np.argsort(-np.asarray(teacher), kind="stable")[:k]
    # The rest may round to 0 or below, of which there is no logarithm.
    return np.append(probabilities[best], max(1 - probabilities[best].sum(), np.finfo(float).tiny))


def _divergence(q: Float64s, p: Float64s, beta: float) -> float:
    if beta == 0:
        return _kl(p, q)
    if beta == 1:
        return _kl(q, p)
    middle = beta * p + (1 - beta) * q
    return beta * _kl(p, middle) + (1 - beta) * _kl(q, middle)


def _kl(p: Float64s, q: Float64s) -> float:
    # 0 log 0 is 0 in the limit, and NaN in numpy.
    is_possible = p > 0
    return float(np.sum(p[is_possible] * np.log(p[is_possible] / q[is_possible])))

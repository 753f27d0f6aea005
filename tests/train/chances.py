"""Is what was drawn what should be drawn?"""

import math
from collections import Counter


def too_unlikely(counts: Counter, probs: list[float]) -> bool:
    """Pearson's chi-square beyond its 99.9 % quantile (Wilson and Hilferty's approximation)."""
    total = sum(counts.values())
    possible = [i for i, p in enumerate(probs) if p > 0]
    assert set(counts) <= set(possible), "a token that was cut off was drawn"
    statistic = sum((counts[i] - total * probs[i]) ** 2 / (total * probs[i]) for i in possible)
    freedom = len(possible) - 1
    quantile = freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic > quantile

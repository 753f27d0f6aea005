"""Compares scored files, evaluations and runs task by task, and says which of them are told apart.

results     what is compared: the scores of each task, read from any of our files
comparison  which tasks pair, which models differ, and what could have been shown
paired      interval, p-value, power and ranks over the same tasks

Contract: `Results` in, `Comparison` out; a new kind of file is a reader in `results`.
Sees the rest of `scoring`, `data` and the ground; `viewer` and `cli` see it.
Goes wrong: pairs of tasks that are not the same (id and reference must agree), UNSCORED rows that
enter a mean, and correlated tasks (`--cluster`).
"""

from rlvr.scoring.compare.comparison import Comparison, Entry, compare
from rlvr.scoring.compare.results import Results, TaskScores, read_labels, read_results

__all__ = ["Comparison", "Entry", "Results", "TaskScores", "compare", "read_labels", "read_results"]

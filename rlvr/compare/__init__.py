"""Compares scored files, evaluations and runs task by task, and says which of them are told apart.

`compare` pairs the tasks of several `Results` and gives a `Comparison`; the statistics are in
`rlvr.compare.paired`.
"""

from rlvr.compare.comparison import Comparison, Entry, compare
from rlvr.compare.results import Results, TaskScores, read_labels, read_results

__all__ = ["Comparison", "Entry", "Results", "TaskScores", "compare", "read_labels", "read_results"]

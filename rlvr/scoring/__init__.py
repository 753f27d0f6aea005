"""Rows of completions become scores, scores become records, and records replay.

items           from rows to completions with their tasks
scorer          `Scorer` and `score`
ordering        items out, observations in, scores in the order of the rows
engine, pool    what looks at completions; worker processes of this machine that can be killed
engines         other machines: services behind HTTP, the nodes of a Ray cluster
wire            items and observations as JSON, and whether two machines do the same
records         what is written of a score, and `replay`
episodes        recorded episodes, graded again or played again
blocks, shards  what a stopped run has finished; shares that are scored apart and joined
tally           counts of outcomes, reasons and parts
identity        how a score was decided: one description that all compare
code_files      digests of the code that takes part
held_values     what objects hold, read past their own methods
watch           what judging code reads: files, variables, modules
loaded_code     code of a notebook, an archive or a pipe
compare         scored files, evaluations and runs, task by task

Contract: `engine.Engine`: items in, an observation for each back, in any order.
Sees `environment`, `rewards`, `data`, `workers`; not `verifiers`.  `testing` and above see it.
Goes wrong: an exception that becomes a 0 (ours is UNSCORED, with its traceback), a row that takes
its neighbours down, and two runs joined that did not judge alike.
"""

from rlvr.scoring.items import Item
from rlvr.scoring.ordering import Scored
from rlvr.scoring.pool import MEMORY_MIB, WALL_S
from rlvr.scoring.records import replay
from rlvr.scoring.scorer import Scorer, score
from rlvr.scoring.tally import Tally

__all__ = ["Item", "MEMORY_MIB", "Scored", "Scorer", "Tally", "WALL_S", "replay", "score"]

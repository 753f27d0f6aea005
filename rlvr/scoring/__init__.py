"""Rows of completions become scores, scores become records, and records replay.

items     from rows to completions with their tasks
ordering  items out, observations in, scores in the order of the rows
engine    what looks at completions: here, or on other machines (`engines`)
pool      the engine of this machine: worker processes that can be killed
wire      items and observations as JSON, and whether two machines do the same
scorer    `Scorer` and `score`
records   what is written of a score, and `replay`
shards    shares of an input that are scored apart, and put together again
tally     counts of outcomes, reasons and parts
engines   other machines: services behind HTTP, the nodes of a Ray cluster
"""

from rlvr.scoring.items import Item
from rlvr.scoring.ordering import Scored
from rlvr.scoring.pool import MEMORY_MIB, WALL_S
from rlvr.scoring.records import replay
from rlvr.scoring.scorer import Scorer, score
from rlvr.scoring.tally import Tally

__all__ = ["Item", "MEMORY_MIB", "Scored", "Scorer", "Tally", "WALL_S", "replay", "score"]

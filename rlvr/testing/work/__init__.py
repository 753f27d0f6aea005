"""Makers of work: completions that are wrong, each with a witness, and completions that are right.

maker         `Maker`, and which one serves an environment
programs      Python functions; with domain, the inputs that a task means
stdio         programs that read standard input, in any language; with layouts, the form of inputs
patches       changes of a project's files
end_states    episodes whose end decides
queries       SQL
structures    JSON, calls, roles, grids, sudokus, expressions
answers       numbers, quantities, formulas, words, options
instructions  texts under instructions
"""

from rlvr.testing.work.maker import Maker, Untested, Witness, Work, maker_for, serves

__all__ = ["Maker", "Untested", "Witness", "Work", "maker_for", "serves"]

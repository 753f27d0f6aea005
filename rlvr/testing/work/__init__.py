"""Makers of work: completions that are wrong, each with a witness, and completions that are right.

maker     `Maker`, and which one serves an environment
programs  Python functions; with domain, the inputs that a task means
queries   SQL
"""

from rlvr.testing.work.maker import Maker, Untested, Witness, Work, maker_for, serves

__all__ = ["Maker", "Untested", "Witness", "Work", "maker_for", "serves"]

"""Runs untrusted programs in milliseconds, within hard limits, and reports how they ended.

Sandbox ─▶ pool ─▶ slots ═══▶ guest/keeper ─▶ guest/zygote ─▶ guest/box ─▶ guest/user: the program
"""

from rlvr.sandbox.grading import Box
from rlvr.sandbox.interaction import Interaction
from rlvr.sandbox.records import (
    Call,
    CallRun,
    Ending,
    Guarantee,
    Isolation,
    Limits,
    Program,
    Reply,
    Run,
    TestCase,
    TestRun,
    TestSuite,
)
from rlvr.sandbox.sandbox import Sandbox
from rlvr.sandbox.sessions import Session, SessionReply

__all__ = [
    "Box",
    "Call",
    "CallRun",
    "Ending",
    "Guarantee",
    "Interaction",
    "Isolation",
    "Limits",
    "Program",
    "Reply",
    "Run",
    "Sandbox",
    "Session",
    "SessionReply",
    "TestCase",
    "TestRun",
    "TestSuite",
]

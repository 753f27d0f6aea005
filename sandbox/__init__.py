"""Runs untrusted programs in milliseconds, within hard limits, and reports how they ended.

Sandbox ─▶ pool ─▶ slots ═══▶ guest/keeper ─▶ guest/zygote ─▶ guest/box ─▶ guest/user: the program

sandbox                `Sandbox`: run, run_cases, call, test, interact, session
records                what goes into a run, and what comes out of it
languages, toolchains  a row for each language; the compilers and interpreters of this host
compiling              from a program to what a box executes, once for each source
pool, slots            slots started and replaced; the keeper process, and requests to slots
guest                  what runs inside: boxes, watches, the programs' own side
sessions, interaction  a program that lives for an episode; one that talks with an interactor
grading                files that a policy left, judged where it never was
outputs                what a run wrote, kept by the kernel until it is asked for
reader, readings       the process that reads what programs wrote, and may die of it
levels, seccomp        levels of isolation as data; which system calls a guest may make
cgroups                memory, processes and CPU clock of a run
probe, attacks         finds out which guarantees hold here, by attacking each
remedies               what to change on a host that lacks something

Contract: `Program` in, `Run` out; the program's end is `Ending`, a value; what we cannot promise is
`IsolationUnavailable`.  A new language is one file with a row (docs/adding.md).
Sees the ground and `workers` alone; `verifiers`, ready tools and above see it.
Goes wrong: anything read from a guest is hostile, also its files and times; a process that outlives
its run; a limit that counts only processes that were waited for.  New attacks go to tests/escapes.
"""

from rlvr.sandbox.grading import Box
from rlvr.sandbox.interaction import Interaction
from rlvr.sandbox.records import (
    CallRun,
    Ending,
    Guarantee,
    Isolation,
    Limits,
    Program,
    ProgramCall,
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
    "CallRun",
    "Ending",
    "Guarantee",
    "Interaction",
    "Isolation",
    "Limits",
    "Program",
    "ProgramCall",
    "Reply",
    "Run",
    "Sandbox",
    "Session",
    "SessionReply",
    "TestCase",
    "TestRun",
    "TestSuite",
]

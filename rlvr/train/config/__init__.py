"""Settings of a run.

setting, readers   a setting's rule, and what reads it; what nothing reads is refused
sampling, scoring, optimiser, engine, evaluation, files   those of one object each
run                all of them: `Config`, and `ResolvedConfig`
"""

from rlvr.train.config.run import Config, ResolvedConfig

__all__ = ["Config", "ResolvedConfig"]

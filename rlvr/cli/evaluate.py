"""`rlvr eval`: evaluates a model on an environment."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from rlvr.cli.arguments import EnvironmentArgument, NameValues, SandboxLevel, Workers, environment_of
from rlvr.data.files import write_whole
from rlvr.data.rows import require_output
from rlvr.environment import SingleTurnEnv
from rlvr.errors import import_optional
from rlvr.samplers.protocol import Sampling
from rlvr.scoring import Scorer

__all__ = ["EvalCommand"]


@dataclass
class EvalCommand:
    """Evaluate a model on an environment: avg@n, pass@k, maj@k with 95 % intervals.

    Example: rlvr eval gsm8k-v2 --model Qwen/Qwen3-0.6B -n 8 -k 1 8 --limit 200 --option split=test
    """

    env: EnvironmentArgument
    model: str
    """Model to evaluate: an id on the Hugging Face hub, or a folder, such as RUN/model of a training run."""
    n: Annotated[int, arg(aliases=["-n"])] = 1
    """Number of completions that are sampled for each task."""
    k: Annotated[tuple[int, ...], arg(aliases=["-k"], help_behavior_hint="(default: 1 and n)")] = ()
    """Values of k for pass@k and maj@k."""
    limit: int | None = None
    """Evaluate only this many tasks, the first ones; required if the environment generates tasks without end."""
    max_tokens: int = 1024
    """Greatest length of a completion, in tokens."""
    temperature: float = 1.0
    """Sampling temperature; 0 takes the most likely token."""
    top_p: float = 1.0
    """Sample from the smallest set of tokens whose probabilities sum to at least this."""
    stop: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: none)")] = ()
    """Texts that end a completion."""
    max_turns: int = 8
    """Greatest number of turns of an episode, in environments with several turns."""
    option: NameValues = ()
    """Set an option of the environment; may be repeated."""
    sandbox: SandboxLevel = None
    chat: bool = False
    """Send a text prompt as a user message in the model's chat template."""
    device: str = "auto"
    """Device of the model, such as cpu or cuda; auto takes a GPU if there is one."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the computation; bf16 computes in bfloat16 over float32 weights."""
    max_rows: int = 256
    """Number of completions that are sampled side by side; each needs memory for its keys and values."""
    workers: Workers = None
    seed: int = 0
    """Seed of the completions."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """Write the whole report to this file, as JSON."""

    def run(self, out: Console, err: Console) -> int:
        setup = import_optional("rlvr.train.setup", "train")
        evaluation = import_optional("rlvr.collect.evaluation", "train")
        if self.output is not None:
            require_output(self.output, overwrite=True, device=True)
        env = environment_of(self.env, self.option, self.sandbox)
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature, top_p=self.top_p, stop=self.stop)
        policy = setup.load_policy(
            self.model, device=self.device, chat=self.chat, autocast=setup.autocast_dtype(self.precision)
        )
        setup.require_end(policy, self.stop)
        with ExitStack() as stack:
            scorer = None
            if isinstance(env, SingleTurnEnv):
                scorer = stack.enter_context(Scorer(env, workers=self.workers))
            report = evaluation.evaluate(
                env,
                policy.sampler(max_rows=self.max_rows),
                sampling=sampling,
                n=self.n,
                k=self.k or None,
                limit=self.limit,
                scorer=scorer,
                seed=self.seed,
                max_turns=self.max_turns,
                progress=True,
            )
        table = Table("metric", "value", "95 % interval", "tasks")
        for name, it in report.metrics.items():
            table.add_row(name, f"{it.value:.4f}", f"{it.low:.4f} to {it.high:.4f}", str(it.tasks))
        out.print(table)
        out.print(
            f"mean length {report.length:.1f} tokens, {report.truncated:.1%} truncated, {report.unscored} unscored"
            + (f", {len(report.too_long)} tasks too long and left out" if report.too_long else "")
        )
        if self.output is not None:
            text = json.dumps(report.as_dict(), indent=2, default=str) + "\n"
            if self.output.exists() and not self.output.is_file():
                self.output.write_text(text, encoding="utf-8")  # a device or a pipe
            else:
                write_whole(self.output, text.encode())
        return int(bool(report.unscored))

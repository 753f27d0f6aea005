"""`rlvr process-labels`: labels of steps from Monte-Carlo continuations, for process reward
models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import arg

from rlvr.cli.arguments import (
    ChatFlag,
    EnvironmentArgument,
    NameValues,
    Overwrite,
    SandboxLevel,
    SystemText,
    TemplateOptions,
    Workers,
    chat_settings_of,
    environment_of,
    require_outputs,
    say_line,
)
from rlvr.console import label_text
from rlvr.data.rows import Journal
from rlvr.environment import require_one_reply
from rlvr.samplers.protocol import Sampling
from rlvr.scoring import Scorer
from rlvr.text import one_line

__all__ = ["ProcessLabelsCommand"]


@dataclass
class ProcessLabelsCommand:
    """Sample completions, continue them from the end of every step,
    and keep how often that leads to a right answer.

    Example: rlvr process-labels gsm8k-v4 --model Qwen/Qwen3-0.6B -o steps.jsonl --tasks 200

    `rlvr train --algorithm process_reward_model --pairs steps.jsonl …` learns from them.

    The columns are TRL's (prompt, completions, labels) and the counts (right, scored).  It samples
    tasks × group size × steps × K completions.  Exit code 1 if no row could be made.
    """

    env: EnvironmentArgument
    model: str
    """Model that is sampled: an id on the Hugging Face hub, or a folder."""
    output: Annotated[Path, arg(aliases=["-o"], metavar="OUT")]
    """Write the rows to this file, .jsonl or .parquet."""
    tasks: int = 100
    """Number of tasks."""
    group_size: int = 4
    """Completions per task."""
    k: Annotated[int, arg(aliases=["-k"])] = 8
    """Completions from the end of each step."""
    delimiter: str = "\n"
    """Text that ends a step."""
    every: bool = False
    """Label the completions of tasks too of which all are right, or all wrong."""
    max_tokens: int = 1024
    """Greatest length of a completion, in tokens."""
    temperature: float = 1.0
    """Sampling temperature."""
    stop: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: none)")] = ()
    """Texts that end a completion."""
    option: NameValues = ()
    """Set an option of the environment; may be repeated."""
    sandbox: SandboxLevel = None
    chat: ChatFlag = "auto"
    system: SystemText = None
    template_option: TemplateOptions = ()
    device: str = "auto"
    """Device of the model, such as cpu or cuda; auto takes a GPU if there is one."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the computation; bf16 computes in bfloat16 over float32 weights."""
    workers: Workers = None
    seed: int = 0
    """Seed of the completions, and of the order of tasks."""
    overwrite: Overwrite = False

    def run(self, out: Console, err: Console) -> int:
        setup, collect = (
            import_module("rlvr.train.setup"),
            import_module("rlvr.collect"),
        )
        labels = import_module("rlvr.collect.process_labels")
        cursor = import_module("rlvr.collect.cursor").Cursor
        require_outputs([self.output], [], overwrite=self.overwrite)
        env = environment_of(self.env, self.option, self.sandbox)
        require_one_reply(env, "whose state cannot be restored from a prefix of tokens")
        autocast = setup.autocast_dtype(self.precision)
        chat = chat_settings_of(self.chat, self.system, self.template_option)
        policy = setup.load_policy(self.model, device=self.device, chat=chat, autocast=autocast)
        setup.say_prompts(policy, env, partial(say_line, err), self.tasks)
        setup.require_end(policy, self.stop)
        sampling = Sampling(
            max_tokens=self.max_tokens, temperature=self.temperature, stop=self.stop
        )
        written = steps = 0
        count = self.tasks if env.size is None else min(self.tasks, env.size)
        with (
            Scorer(env, workers=self.workers) as scorer,
            collect.Groups(
                env,
                policy.sampler(),
                group_size=self.group_size,
                sampling=sampling,
                scorer=scorer,
                key=("process-labels", self.seed),
            ) as groups,
            Journal(self.output, overwrite=self.overwrite) as journal,
        ):
            tasks = cursor(env, seed=self.seed).take(count)
            for row in labels.process_labels(
                groups, tasks, k=self.k, delimiter=self.delimiter, every=self.every
            ):
                journal.write(row)
                written, steps = written + 1, steps + len(row["completions"])
            if written:
                journal.finish()
        if not written:
            err.print(
                label_text(
                    "nothing is written:",
                    "every task's completions are all right or all wrong; give --every, more "
                    "tasks, or a greater --group-size",
                ),
                soft_wrap=True,
            )
            return 1
        out.print(
            f"{written} completions with {steps} steps in {one_line(self.output)}",
            soft_wrap=True,
        )
        return 0

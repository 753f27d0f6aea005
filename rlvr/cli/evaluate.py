"""`rlvr eval`: evaluates a model in this process, or behind an endpoint, on an environment."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from rlvr.cli.arguments import (
    Accept,
    ChatFlag,
    EngineAddress,
    EnvironmentArgument,
    NameValues,
    Overwrite,
    PatienceSeconds,
    RewardText,
    SandboxLevel,
    StrictRows,
    SystemText,
    TemplateOptions,
    Workers,
    chat_settings_of,
    engine_at,
    environment_of,
    say_line,
)
from rlvr.console import label_text
from rlvr.data.files import write_whole
from rlvr.data.rows import require_output
from rlvr.display import Activity, LeftOut
from rlvr.environment import Environment
from rlvr.errors import ServiceFailed, UsageError
from rlvr.samplers.protocol import MAX_TOKENS_IN_FLIGHT, Sampling
from rlvr.scoring import Scorer
from rlvr.scoring.identity import Identity, IdentityFile, identity_of
from rlvr.scoring.records import provenance
from rlvr.text import one_line

if TYPE_CHECKING:
    from rlvr.collect.evaluation import EvaluationReport
    from rlvr.collect.rollout_records import RolloutFile
    from rlvr.samplers.protocol import Sampler

__all__ = ["EvalCommand"]

_SAMPLING: Final = (
    "precision", "max_rows", "max_tokens_in_flight", "sampler", "serve_samplers", "sampler_python",
    "sampler_key_env", "sampler_folder", "sampler_positions",
)  # fmt: skip
"""Flags that say what samples, with the names of a run's settings."""

_SHOWN_UNSCORED: Final = 5  # reasons


@dataclass
class EvalCommand:
    """Evaluate a model on an environment: avg@n, pass@k, maj@k with 95 % intervals.

    Example: rlvr eval gsm8k-v4 --model Qwen/Qwen3-0.6B -n 8 -k 1 8 --limit 200 --option split=test
    Example: rlvr eval gsm8k-v4 --endpoint http://127.0.0.1:8000/v1 --model NAME --key-env MY_KEY
    """

    env: EnvironmentArgument
    model: str
    """Model to evaluate: an id on the Hugging Face hub, or a folder,
    such as RUN/model of a training run; with --endpoint its name there."""
    endpoint: Annotated[str | None, arg(metavar="URL")] = None
    """Ask a model behind an OpenAI-compatible API, such as http://127.0.0.1:8000/v1,
    instead of loading one."""
    sampler: str = "local"
    """What samples, instead of the model in this process: vllm (an engine in this process), or
    addresses of vLLM servers, such as http://a:8000,http://b:8000, which are given the model's
    weights."""
    serve_samplers: int | None = None
    """Start this many vLLM servers on this machine, which end with the command,
    and sample from them."""
    sampler_python: Path | None = None
    """Python of the environment that has vLLM, for the servers that are started here."""
    sampler_key_env: Annotated[str | None, arg(metavar="VARIABLE")] = None
    """Environment variable that holds the vLLM servers' key."""
    sampler_folder: Path | None = None
    """Folder through which vLLM servers get the weights; none for this machine's shared memory."""
    sampler_positions: int | None = None
    """Most tokens of prompt and completion together in vLLM; none for those of the model."""
    key_env: Annotated[str | None, arg(metavar="VARIABLE")] = None
    """Environment variable that holds the endpoint's key."""
    api: Literal["chat", "completions"] = "chat"
    """chat: send messages, a text prompt as one of the user;
    completions: send texts to be continued."""
    in_flight: int = 32
    """Greatest number of requests to the endpoint at a time."""
    retries: int = 6
    """How often a request that failed or was limited is sent again."""
    timeout_s: float = 600.0
    """Seconds without an answer after which a request is sent again."""
    body: Annotated[NameValues, arg(metavar="NAME=VALUE")] = ()
    """Set a parameter of the requests, such as top_k=20; null leaves it out.  May be repeated."""
    price: Annotated[tuple[float, float] | None, arg(metavar="DOLLARS DOLLARS")] = None
    """Price of a million tokens of prompts and of completions, to show the cost."""
    rollouts: Annotated[Path | None, arg(metavar="FILE")] = None
    """Keep every rollout in this file, .jsonl or .parquet;
    with --endpoint by default ENV-MODEL.rollouts.jsonl."""
    resume: bool = False
    """Continue a run that was stopped, or ask again for completions that could not be had."""
    accept: Accept = ()
    overwrite: Overwrite = False
    n: Annotated[int, arg(aliases=["-n"])] = 1
    """Number of completions that are sampled for each task."""
    k: Annotated[tuple[int, ...], arg(aliases=["-k"], help_behavior_hint="(default: 1 and n)")] = ()
    """Values of k for pass@k and maj@k."""
    limit: int | None = None
    """Evaluate only this many tasks, the first ones;
    required if the environment generates tasks without end."""
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
    strict: StrictRows = False
    reward: RewardText = None
    sandbox: SandboxLevel = None
    chat: ChatFlag = "auto"
    system: SystemText = None
    template_option: TemplateOptions = ()
    device: str = "auto"
    """Device of the model, such as cpu or cuda; auto takes a GPU if there is one."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of the computation; bf16 computes in bfloat16 over float32 weights."""
    max_rows: int = 256
    """Number of completions that are sampled side by side;
    each needs memory for its keys and values."""
    max_tokens_in_flight: int = MAX_TOKENS_IN_FLIGHT
    """Number of tokens whose keys and values are kept while sampling;
    lower it if memory runs out."""
    workers: Workers = None
    scorer: EngineAddress = None
    patience_s: PatienceSeconds = 300.0
    seed: int = 0
    """Seed of the completions."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="OUT")] = None
    """Write the whole report to this file, as JSON."""

    @property
    def resumable(self) -> bool:
        """Whether `--resume` goes on where a run was stopped."""
        return self.rollouts is not None

    def run(self, out: Console, err: Console) -> int:
        evaluation = import_module("rlvr.collect.evaluation")
        if self.output is not None:
            require_output(self.output, overwrite=True, device=True)
        self._require_fitting()
        env = environment_of(
            self.env, self.option, self.sandbox, reward=self.reward, strict=self.strict
        )
        if self.endpoint is not None and self.rollouts is None:  # they cost money, so they are kept
            self.rollouts = Path(
                re.sub(r"[^\w.-]+", "-", f"{env.id}-{self.model}") + ".rollouts.jsonl"
            )
        sampling = Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            stop=self.stop,
        )
        with ExitStack() as stack:
            sampler: Any = (
                self._local(env, stack, err)
                if self.endpoint is None
                else self._behind_endpoint(stack)
            )
            chat = None if self.endpoint is not None else sampler.tokenization.format.identity
            identity = identity_of(env)
            rollout_file = self._open_rollouts(env, identity, sampling, chat, stack)
            engine = engine_at(self.scorer, self.patience_s)
            scorer = stack.enter_context(
                Scorer(env, workers=self.workers, engine=engine, accept=self.accept)
            )
            if rollout_file is not None:
                rollout_file.judged_by(scorer.identity())
            try:
                report = evaluation.evaluate(
                    env,
                    sampler,
                    sampling=sampling,
                    n=self.n,
                    k=self.k or None,
                    limit=self.limit,
                    scorer=scorer,
                    seed=self.seed,
                    max_turns=self.max_turns,
                    known=rollout_file.results if rollout_file else (),
                    on_group=rollout_file.write if rollout_file else None,
                    progress=True,
                )
            except ServiceFailed as error:
                if rollout_file is None or not rollout_file.count:
                    raise
                raise ServiceFailed(
                    f"{error}. {rollout_file.count} rollouts are kept: --resume goes on"
                ) from None
            identity_file = (
                IdentityFile(None, identity, accept=self.accept)
                if rollout_file is None
                else rollout_file.identity_file
            )
            identity_file.add(scorer.identity())
            if rollout_file is not None and rollout_file.count:
                rollout_file.finish()
        self._show(report, rollout_file, out)
        unscored = LeftOut()
        for task in report.tasks:
            for why in task.unscored_whys:
                unscored.add(task.task, why[:500])
        for line in unscored.lines(_SHOWN_UNSCORED):
            err.print(label_text("unscored:", line), soft_wrap=True)
        if report.truncated == 1 and self.endpoint is None:
            alarm = import_module("rlvr.train.alarm")
            say_line(err, alarm.never_ends(sampler.tokenization.format))
        if self.output is not None:
            self._write_report(report, rollout_file, chat, identity_file.identity)
        return int(bool(report.unscored))

    def _require_fitting(self) -> None:
        """Refuse flags that do not go together."""
        if self.endpoint is None:
            server_flags = {"key-env": self.key_env, "body": self.body, "price": self.price}
            if extra := [f"--{name}" for name, value in server_flags.items() if value]:
                raise UsageError(
                    f"{', '.join(extra)}: these are for --endpoint URL, which was not given"
                )
        else:
            local = {"device": "auto", "precision": "fp32", "max_rows": 256, "chat": "auto"}
            local |= {"sampler": "local", "serve_samplers": None, "system": None}
            local |= {"template_option": ()}
            if extra := [
                f"--{name.replace('_', '-')}"
                for name, value in local.items()
                if getattr(self, name) != value
            ]:
                raise UsageError(
                    f"{', '.join(extra)}: these are for a model in this process, not for --endpoint"
                )
        if self.price is not None and not all(0 <= price < float("inf") for price in self.price):
            raise UsageError(
                f"--price is {self.price}; give two numbers of dollars, such as --price 0.15 0.60"
            )
        if self.rollouts is None and self.endpoint is None and (self.resume or self.overwrite):
            raise UsageError(
                "--resume and --overwrite are about the file of --rollouts, which was not given"
            )

    def _local(self, env: Environment, stack: ExitStack, err: Console) -> Sampler:
        """The model's own sampler, or a vLLM engine that is given its weights."""
        setup = import_module("rlvr.train.setup")
        by_default = {flag.name: flag.default for flag in dataclasses.fields(self)}
        flags = {name: getattr(self, name) for name in _SAMPLING}
        settings = import_module("rlvr.train.config").Config(
            env="eval",  # a name; the environment is made above
            model=self.model,
            # what servers print
            run=Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rlvr-eval-"))),
            **{name: value for name, value in flags.items() if value != by_default[name]},
        )
        with Activity(err).working(f"loading {self.model}"):
            policy = setup.load_policy(
                self.model,
                device=self.device,
                chat=chat_settings_of(self.chat, self.system, self.template_option),
                autocast=setup.autocast_dtype(self.precision),
            )
        setup.require_end(policy, self.stop)
        setup.say_prompts(policy, env, partial(say_line, err), self.limit)
        sampling = import_module("rlvr.train.sampling")
        sampler: Sampler = stack.enter_context(sampling.open_sampler(policy, settings))
        if settings.engine != "local":
            sampler.sync(policy.weights(), 0)
        return sampler

    def _behind_endpoint(self, stack: ExitStack) -> Sampler:
        endpoint = import_module("rlvr.samplers.endpoint")
        sampler: Sampler = stack.enter_context(
            endpoint.EndpointSampler(
                self.endpoint,
                self.model,
                key_env=self.key_env,
                api=self.api,
                in_flight=self.in_flight,
                retries=self.retries,
                timeout_s=self.timeout_s,
                body=_parameters(self.body),
            )
        )
        return sampler

    def _open_rollouts(
        self,
        env: Environment,
        identity: Identity,
        sampling: Sampling,
        chat: Mapping[str, object] | None,
        stack: ExitStack,
    ) -> RolloutFile | None:
        if self.rollouts is None:
            return None
        records = import_module("rlvr.collect.rollout_records")
        run = provenance(env, self.env, identity) | {
            "model": self.model,
            "sampling": asdict(sampling) | {"stop": list(sampling.stop)},
            "n": self.n,
            "seed": self.seed,
            "max_turns": self.max_turns,
            "chat": chat,
            "endpoint": None
            if self.endpoint is None
            else {"api": self.api, "body": _parameters(self.body)},
        }
        rollout_file: RolloutFile = stack.enter_context(
            records.RolloutFile(
                self.rollouts,
                run,
                identity,
                resume=self.resume,
                overwrite=self.overwrite,
                accept=self.accept,
            )
        )
        return rollout_file

    def _show(self, report: EvaluationReport, kept: RolloutFile | None, out: Console) -> None:
        table = Table("metric", "value", "95 % interval", "tasks")
        for name, metric in report.metrics.items():
            table.add_row(
                name,
                f"{metric.value:.4f}",
                f"{metric.low:.4f} to {metric.high:.4f}",
                str(metric.tasks),
            )
        out.print(table)
        out.print(
            f"mean length {report.length:.1f} tokens, {report.truncated:.1%} truncated, "
            f"{report.unscored} unscored"
            + (f", {len(report.too_long)} tasks too long and left out" if report.too_long else "")
        )
        if kept is None:
            return
        if kept.usage.replies:
            out.print(kept.usage.line(self.price))
        if kept.count:
            out.print(f"rollouts written to {one_line(self.rollouts)}", soft_wrap=True)
        if kept.usage.lost:
            out.print(
                f"{kept.usage.lost} completions could not be had; the last: "
                f"{kept.usage.last_lost}. "
                "The same command with --resume asks for them again",
                soft_wrap=True,
            )

    def _write_report(
        self,
        report: EvaluationReport,
        kept: RolloutFile | None,
        chat: Mapping[str, object] | None,
        identity: Identity,
    ) -> None:
        assert self.output is not None
        header = {
            "model": self.model,
            "chat": chat,
            "usage": kept.usage.as_dict(self.price) if kept is not None else None,
            "identity": identity.as_dict(),
        }
        text = json.dumps(report.as_dict() | header, indent=2, default=str) + "\n"
        if self.output.exists() and not self.output.is_file():
            self.output.write_text(text, encoding="utf-8")  # a device or a pipe
        else:
            write_whole(self.output, text.encode())


def _parameters(given: Iterable[str]) -> dict[str, object]:
    """Parameters of requests from NAME=VALUE pairs; a value is JSON if it can be, else text."""
    parameters: dict[str, object] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not (equals and name):
            raise UsageError(f"--body {pair}: write NAME=VALUE, such as --body top_k=20")
        try:
            parameters[name] = json.loads(value)
        except ValueError:
            parameters[name] = value
    return parameters

"""Settings of sampling: completions, episodes, prompts, and what changes on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from rlvr.algo.papers.base import Algorithm
from rlvr.algo.parts import OverlongHandling
from rlvr.collect.groups import STEP_S
from rlvr.collect.scheduler import Schedule
from rlvr.errors import UsageError
from rlvr.samplers.chat import ChatMode, ChatSettings, require_chat_mode
from rlvr.train.config.readers import PLAYS, SAMPLES
from rlvr.train.config.setting import (
    ONE,
    OPTIONAL_ONE,
    ZERO,
    Options,
    Reader,
    Repeated,
    Settings,
    TextList,
    one_of,
    or_none,
    setting,
)
from rlvr.train.stage import read_stages
from rlvr.validate import require_number, require_seconds

if TYPE_CHECKING:  # it has these settings
    from rlvr.train.config.run import Config, ResolvedConfig

__all__ = ["SamplingSettings"]


def _refills(config: Config, algorithm: Algorithm) -> bool:
    return algorithm.dynamic_sampling and algorithm.refill and config.pairs is None


def _forks(config: Config, algorithm: Algorithm) -> bool:
    values = "prefix_values" in algorithm.reads and algorithm.forks == "steps"
    return values or config.step_reward == "forks"


_COMPLETIONS: Final = Reader(
    "algorithms that sample completions", lambda _, own: "file" not in own.needs
)
_FORKS: Final = Reader("algorithms with forks, such as vineppo, and of --step-reward forks", _forks)
_REFILL: Final = Reader(
    "dynamic sampling that samples other groups (--dynamic-sampling true)", _refills
)
_SOFT: Final = Reader(
    "the soft punishment (--overlong soft)",
    lambda config, own: "soft" in (config.overlong or own.overlong),
)


@dataclass(frozen=True, kw_only=True)
class SamplingSettings(Settings):
    """What is sampled for a step: completions, episodes, prompts.

    Attributes:
        max_tokens: Most tokens of a completion.
        temperature: Sampling temperature.  Losses are at it too, but for those of pairs, labels
            and right completions, which are of the model itself.  None: the algorithm's.
        stop: TextList that end a completion.
        overlong: What is done with truncated completions: keep (train on them), mask (leave them
            out of the loss), soft (lower the score of long ones, as DAPO does) or soft+mask (both).
            None: the algorithm's choice.
        overlong_cache: Tokens before `max_tokens` over which the soft punishment rises.  None: a
            fifth of `max_tokens`, as in DAPO.
        max_turns: Most turns of an episode.
        step_s: Most wall seconds of an agent's own work between two completions.
        turn_schedule: When an environment's reply is sampled from: ready (as soon as it is there)
            or tokens (after a fixed number of decode steps, so that runs repeat to the last bit).
            None: tokens with the local sampler.
        max_tries: Most tasks that dynamic sampling tries for each group of a batch.  None: 10.
        vine_k: Completions per step of a rollout from which VinePPO estimates values (K).  None: 9,
            as in the paper.
        max_staleness: Most training steps between the weights that sample a token and the weights
            that are trained on it.  0: sampling and training take turns.  1: the next batch is
            collected while this one is trained on. From 2: further batches are under way too, and
            their completions go on while the weights change.  The algorithm's correction, or its
            own weight for the policy that sampled, makes up for it; if it has neither, truncated
            importance sampling does.  So with vLLM.
        chat: How text prompts are sent: on (as a user message of the model's chat template), off
            (as they are) or auto (on if the tokenizer has a template; of a model that a run has
            saved, as in that run).  --chat alone is on.
        system: System message before prompts that have none.  None: what the template does without
            one.
        template_options: Variables of the chat template, such as {"enable_thinking": False}.
        stage: What the run changes on its way, such as at=2000,max_tokens=16384,reset=all; may be
            repeated.  It begins after that many steps, or at=stalled:3 (validations without a new
            best) or at=truncated:0.2 (share of completions).  NAME=linear(TO), cosine(TO, STEPS) or
            towards(METRIC, TARGET) is a schedule.
    """

    about = "completions and episodes"

    max_tokens: int = setting(512, ONE, usual=True)
    temperature: float | None = setting(
        None, or_none(partial(require_number, above=0, hint="near 1 to train")), usual=True
    )
    stop: TextList = ()
    overlong: OverlongHandling | None = setting(
        None, one_of(OverlongHandling, or_none=True), reader=_COMPLETIONS
    )
    overlong_cache: int | None = setting(None, OPTIONAL_ONE, reader=_SOFT)
    max_turns: int = setting(8, ONE, reader=PLAYS)
    step_s: float = setting(STEP_S, require_seconds, reader=PLAYS)
    turn_schedule: Schedule | None = setting(None, one_of(Schedule, or_none=True), reader=PLAYS)
    max_tries: int | None = setting(None, OPTIONAL_ONE, reader=_REFILL, stands_for=10)
    vine_k: int | None = setting(None, OPTIONAL_ONE, reader=_FORKS, stands_for=9)
    max_staleness: int = setting(0, ZERO, reader=SAMPLES)
    chat: ChatMode = setting("auto", require_chat_mode, usual=True)
    system: str | None = setting(None, usual=True)
    template_options: Options = field(default_factory=dict)
    stage: Repeated = setting((), read_stages)

    @property
    def chat_settings(self) -> ChatSettings:
        """How text prompts are to be sent.

        Raises:
            UsageError: they contradict each other.
        """
        return ChatSettings(self.chat, self.system, self.template_options)

    @staticmethod
    def require(config: ResolvedConfig) -> None:
        """Refuse chat settings with chat off, and shares of a punishment of length that there is
        not.

        Args:
            config: all settings of the run.

        Raises:
            UsageError: two contradict each other.
        """
        config.chat_settings  # noqa: B018  raises
        algorithm = config.algorithm
        is_own_share = algorithm.overlong_share != type(algorithm).overlong_share
        if is_own_share and "soft" not in config.overlong:
            raise UsageError(
                f"overlong_share is {algorithm.overlong_share}, and overlong {config.overlong!r} "
                "punishes nothing; leave it out, or choose overlong 'soft'"
            )

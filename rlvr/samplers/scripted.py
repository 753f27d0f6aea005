"""A sampler without a model, whose completions come from a list or a function; for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from rlvr.errors import UsageError, brief
from rlvr.samplers.protocol import Context, Sample, Sampling, cut_at_stop, is_token_ids
from rlvr.types import Prompt
from rlvr.validate import require_number

__all__ = ["END", "Script", "ScriptedSampler"]

END = 0x110000
"""The end token: the first number that is not a Unicode code point."""

Script: TypeAlias = Callable[[Prompt, int, int], str]
"""(prompt, rollout index, seed) → completion.  If the prompt is token ids, it is given as text."""


class ScriptedSampler:
    """Returns scripted completions.  A character is one token, its code point, and `END` follows the last.

    Args:
        script: texts, of which rollout g gets the one at index g modulo their number; or a function of (prompt,
            rollout index, seed) that always returns the same text for the same arguments.
        logprobs: log-probability of every token, at most 0; or a function from completion ids to one for each.  It
            serves as `logprobs` and as `model_logprobs`.
        version: weight version of the samples.

    Raises:
        UsageError: `script` or `logprobs` is none of these.
    """

    def __init__(
        self,
        script: Sequence[str] | Script,
        *,
        logprobs: float | Callable[[Sequence[int]], Sequence[float]] = -1.0,
        version: int = 0,
    ) -> None:
        listed = isinstance(script, Sequence) and not isinstance(script, str)
        if not callable(script) and not (listed and script and all(isinstance(text, str) for text in script)):
            raise UsageError(
                f"script is {brief(script)}; give a list of texts, or a function of (prompt, rollout, seed)"
            )
        if not callable(logprobs):
            require_number("logprobs", logprobs, most=0, hint="or a function of the tokens")
        self.version = version
        self._script, self._logprobs = script, logprobs

    def generate(
        self,
        prompts: Sequence[Context],
        n: int,
        sampling: Sampling,
        seeds: Sequence[Sequence[int]],
        *,
        limits: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, int, Sample]]:
        """See `Sampler.generate`.  Completions come in order, cut off at the token limit and at the first stop text."""
        for p, context in enumerate(prompts):
            limit = min(sampling.max_tokens, limits[p] if limits is not None else sampling.max_tokens)
            if is_token_ids(context):
                prompt: Prompt = self.decode(context)
                prompt_ids: Sequence[int] = context
            else:
                prompt = cast(Prompt, context)
                prompt_ids = self.encode(prompt)
            for g in range(n):
                text = self._text(prompt, g, seeds[p][g])
                yield p, g, self._sample(text, prompt_ids, limit, sampling.stop)

    def encode(self, prompt: Prompt, after: Sequence[int] = ()) -> Sequence[int]:
        """See `Sampler.encode`.  Chat messages become lines `role: content`, followed by `assistant: `."""
        if not isinstance(prompt, str):
            lines = [f"{message['role']}: {message['content']}\n" for message in prompt]
            prompt = "".join(["\n" if after else "", *lines, "assistant: "])
        return [ord(char) for char in prompt]

    def decode(self, completion_ids: Sequence[int]) -> str:
        """See `Sampler.decode`."""
        return "".join(chr(token) for token in completion_ids if token != END)

    def sync(self, state: Any, version: int) -> None:
        """Set the version; there are no weights.

        Args:
            state: not used.
            version: of the next samples.
        """
        self.version = version

    def _text(self, prompt: Prompt, rollout: int, seed: int) -> str:
        if callable(self._script):
            return self._script(prompt, rollout, seed)
        return self._script[rollout % len(self._script)]

    def _sample(self, text: str, prompt_ids: Sequence[int], limit: int, stop: Sequence[str]) -> Sample:
        ids = [*map(ord, cut_at_stop(text, stop)), END]
        truncated = len(ids) > limit
        ids = ids[:limit]
        logprobs = self._logprobs(ids) if callable(self._logprobs) else [float(self._logprobs)] * len(ids)
        return Sample(self.decode(ids), prompt_ids, ids, logprobs, logprobs, truncated, self.version)

"""A sampler without a model: completions come from a list or a function.  For tests, demonstrations and dry runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from rlvr.errors import UsageError, brief
from rlvr.samplers.protocol import Context, Sample, Sampling, cut, is_token_ids
from rlvr.types import Prompt

__all__ = ["END", "Script", "ScriptedSampler"]

END = 0x110000
"""The end token: the first number that is no character."""

Script: TypeAlias = Callable[[Prompt, int, int], str]
"""(prompt, rollout index, seed) → completion.  Where tokens are to be continued, the prompt is their text."""


class ScriptedSampler:
    """Says what it is told to.  One token per character, its code point, and `END` after the last.

    Args:
        script: texts, of which rollout g gets number g modulo their count; or a function of (prompt, rollout index,
            seed), which is called again and again and must answer alike.
        logprobs: of every token; or a function of (completion_ids) that gives one for each.  Both kinds of a
            `Sample` are the same.
        version: of the weights that it pretends to have.
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
        if not callable(logprobs) and not (isinstance(logprobs, (int, float)) and logprobs <= 0):
            raise UsageError(f"logprobs is {brief(logprobs)}; give a number of at most 0, or a function of the tokens")
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
        """The script's completions, in order; cut off at the token limit and at the first stop text."""
        for p, context in enumerate(prompts):
            limit = min(sampling.max_tokens, limits[p] if limits is not None else sampling.max_tokens)
            if is_token_ids(context):
                prompt: Prompt = self.decode(context)
                prompt_ids: Sequence[int] = context
            else:
                prompt = cast(Prompt, context)
                prompt_ids = self.encode(prompt)
            for g in range(n):
                text = self._said(prompt, g, seeds[p][g])
                yield p, g, self._sample(text, prompt_ids, limit, sampling.stop)

    def encode(self, prompt: Prompt, after: Sequence[int] = ()) -> Sequence[int]:
        """A text as its characters; a chat as a line `role: content` for each message, then `assistant: `."""
        if not isinstance(prompt, str):
            lines = [f"{message['role']}: {message['content']}\n" for message in prompt]
            prompt = "".join(["\n" if after else "", *lines, "assistant: "])
        return [ord(char) for char in prompt]

    def decode(self, completion_ids: Sequence[int]) -> str:
        """The characters, without end tokens."""
        return "".join(chr(token) for token in completion_ids if token != END)

    def sync(self, state: Any, version: int) -> None:
        """Nothing but the version changes."""
        self.version = version

    def _said(self, prompt: Prompt, rollout: int, seed: int) -> str:
        if callable(self._script):
            return self._script(prompt, rollout, seed)
        return self._script[rollout % len(self._script)]

    def _sample(self, text: str, prompt_ids: Sequence[int], limit: int, stop: Sequence[str]) -> Sample:
        ids = [*map(ord, cut(text, stop)), END]
        truncated = len(ids) > limit
        ids = ids[:limit]
        logprobs = self._logprobs(ids) if callable(self._logprobs) else [float(self._logprobs)] * len(ids)
        return Sample(self.decode(ids), prompt_ids, ids, logprobs, logprobs, truncated, self.version)

"""A sampler without a model, whose completions come from a list or a function; for
tests and demonstrations."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rlvr.errors import UsageError, brief
from rlvr.samplers.protocol import Request, Sample, Tokenized, cut_at_stop
from rlvr.types import Prompt
from rlvr.validate import require_number

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["END", "Script", "ScriptedSampler"]

END = 0x110000
"""The end token: the first number that is not a Unicode code point."""

# An array's unsigned int has 32 bits nearly everywhere; its bytes then are UTF-32 of this machine.
_POINTS = f"utf-{8 * array('I').itemsize}-{'le' if sys.byteorder == 'little' else 'be'}"

Script: TypeAlias = Callable[[str, int, int], str]
"""(context as text, rollout index, seed) → completion."""


class ScriptedSampler:
    """Returns scripted completions.  A character is one token, its code point,
    and `END` follows the last.

    Args:
        script: texts, of which rollout g gets the one at index g modulo their number; or a function
            of (context, rollout index, seed) that always returns the same text for the same
            arguments.
        logprobs: log-probability of every token, at most 0; or a function from completion ids to
            one for each.
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
        if not callable(script) and not (
            listed and script and all(isinstance(text, str) for text in script)
        ):
            raise UsageError(
                f"script is {brief(script)}; give a list of texts, or a function of (prompt, "
                f"rollout, seed)"
            )
        if not callable(logprobs):
            require_number("logprobs", logprobs, most=0, hint="or a function of the tokens")
        self.version = version
        self._script, self._logprobs = script, logprobs
        self._requests: dict[Hashable, Request] = {}

    def submit(self, request: Request) -> None:
        """See `Sampler.submit`.

        Args:
            request: what is asked for.
        """
        self._requests[request.id] = request

    def poll(self) -> list[tuple[Hashable, Sample]]:
        """See `Sampler.poll`.  All requests come in their order, cut off at the limit and at the
        first stop text."""
        requests, self._requests = self._requests, {}
        return [(request.id, self._sample(request)) for request in requests.values()]

    def abort(self, ids: Iterable[Hashable]) -> None:
        """See `Sampler.abort`.

        Args:
            ids: of requests.
        """
        for dropped in ids:
            self._requests.pop(dropped, None)

    def logprobs(self, rows: Sequence[Tokenized]) -> list[list[float]]:
        """See `Sampler.logprobs`.

        Args:
            rows: prompts and completions.
        """
        return [self._scripted_logprobs(row.completion_ids) for row in rows]

    def encode(
        self, prompt: Prompt, after: Sequence[int] = (), *, tools: Sequence[Any] = ()
    ) -> Sequence[int]:
        """See `Sampler.encode`.  Chat messages become lines `role: content`, followed by
        `assistant: `.

        Tools stand in a first line `tools: NAME NAME`; calls are written in <tool_call> tags.
        """
        if tools and not after:
            names = " ".join(tool["function"]["name"] for tool in tools)
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
            prompt = [{"role": "tools", "content": names}, *messages]
        if not isinstance(prompt, str):
            lines = [f"{message['role']}: {message['content']}\n" for message in prompt]
            prompt = "".join(["\n" if after else "", *lines, "assistant: "])
        return [ord(char) for char in prompt]

    def decode(self, completion_ids: Sequence[int]) -> str:
        """See `Sampler.decode`."""
        # At once, which is a third of the time of a `chr` for each: a context has thousands.
        points = array("I", [token for token in completion_ids if token != END])
        return points.tobytes().decode(_POINTS, "surrogatepass")

    def sync(self, weights: Iterable[Mapping[str, Tensor]], version: int) -> None:
        """Set the version; there are no weights.

        Args:
            weights: not used.
            version: of the next samples.
        """
        self.version = version

    def _sample(self, request: Request) -> Sample:
        if callable(self._script):
            text = self._script(self.decode(request.context), request.rollout, request.seed)
        else:
            text = self._script[request.rollout % len(self._script)]
        text = cut_at_stop(text, request.sampling.stop)
        ids = [*map(ord, text), END]
        # `END` counts as a token, so a text as long as the limit is cut.
        truncated = len(ids) > request.limit
        text, ids = text[: request.limit], ids[: request.limit]
        logprobs = self._scripted_logprobs(ids)
        return Sample(text, list(request.context), ids, logprobs, truncated, self.version)

    def _scripted_logprobs(self, ids: Sequence[int]) -> list[float]:
        return (
            list(self._logprobs(ids))
            if callable(self._logprobs)
            else [float(self._logprobs)] * len(ids)
        )

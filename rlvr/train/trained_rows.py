"""Texts as rows that are trained on, or scored by a reward model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rlvr.samplers.tokenization import Tokenization
from rlvr.types import Prompt

__all__ = ["TrainedRow", "step_row", "tokenized"]


class TrainedRow(NamedTuple):
    """A completion in tokens.

    Attributes:
        prompt_ids: at least one.
        completion_ids: at least one; the last is the end token, unless the completion was
            truncated.
        completion_mask: True for trained tokens, of which there is at least one.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    completion_mask: Sequence[bool]


def tokenized(
    tokenization: Tokenization, prompt: Prompt, completions: Sequence[tuple[str, bool]]
) -> tuple[TrainedRow, ...]:
    """A row for each completion of a prompt: the prompt's tokens, the text's own tokens, and the
    end token.

    The text is tokenised apart from the prompt, since a sampler continues the prompt's tokens.

    Args:
        tokenization: of the policy.
        prompt: a text or chat messages.
        completions: (text, truncated) of each; a truncated one has no end token.

    Raises:
        UsageError: the tokenizer has no end token.
    """
    prompt_ids, end = tokenization.encode(prompt), tokenization.closing_id
    rows = []
    for text, truncated in completions:
        ids = tokenization.encode_reply(text, prompt_ids) + ([] if truncated else [end])
        rows.append(TrainedRow(prompt_ids, ids, [True] * len(ids)))
    return tuple(rows)


def step_row(
    tokenization: Tokenization, prompt: Prompt, steps: Sequence[str]
) -> tuple[TrainedRow, list[int]]:
    """A completion in steps as a row, and the number of its tokens up to each step's end.

    Args:
        tokenization: of the policy.
        prompt: a text or chat messages.
        steps: the completion's parts in order, with what separates them.

    Raises:
        UsageError: the tokenizer has no end token.
    """
    prompt_ids, ids, ends = tokenization.encode(prompt), list[int](), list[int]()
    for number, step in enumerate(steps):
        if number == 0:
            # Without the text that the template began the
            # reply with: that is in the prompt's tokens.
            ids += tokenization.encode_reply(step, prompt_ids)
        else:
            # Later steps follow text, and get no opening.
            ids += tokenization.encode(step, after=prompt_ids)
        ends.append(len(ids))
    ids.append(tokenization.closing_id)
    return TrainedRow(prompt_ids, ids, [True] * len(ids)), ends

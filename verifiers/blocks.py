"""The one answer of a completion that is code or data: in a fenced block, or the whole text after the thinking."""

from __future__ import annotations

from collections.abc import Collection

from rlvr.text import after_thinking, fenced_blocks
from rlvr.types import Outcome, Verdict

__all__ = ["sole_answer"]


def sole_answer(text: str, languages: Collection[str], *, most: int) -> str | Verdict:
    """The text of the answer, or the verdict that says why there is none.

    Two blocks that differ are two answers, of which a policy could let the better one count: they are WRONG.

    Args:
        text: a completion.
        languages: of the fenced blocks that count, such as {"sql", ""}; others are explanations.
        most: greatest length of the answer, in characters.
    """
    begin = after_thinking(text)
    if begin is None:
        return Verdict(Outcome.UNPARSED, why="unfinished-thinking")
    rest = text[begin:]
    blocks = [block for block in fenced_blocks(rest) if block.language in languages]
    found = {block.code.strip() for block in blocks} if blocks else {rest.strip()}
    if len(found) > 1:
        return Verdict(Outcome.WRONG, why=f"several-answers: {len(found)} blocks that differ")
    [answer] = found
    if not answer:
        return Verdict(Outcome.UNPARSED, why="no-answer")
    if len(answer) > most:
        return Verdict(
            Outcome.WRONG,
            why=f"too-long: {len(answer):,} characters, of {most:,} allowed",
            answer=answer[:80],
        )
    return answer

"""Text games without tools: the policy's turn is a move, and a simulated user answers it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import rlvr
from rlvr.text import after_thinking
from rlvr.validate import require_one_of, require_whole

__all__ = ["Guess", "Wordle", "marks"]

# tenths of the words
# By a hash of each word: the splits share no word.
_SPLITS: Final = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
# [crane], [ 42 ]: up to 20 signs without brackets in them.
_MOVE: Final = re.compile(r"\[\s*([^\[\]\s]{1,20})\s*\]")
_WORDS: Final = """
about above actor adult agent alarm album alert alike alive alone angle apple apply arena array
aside award bacon badge baker basic basin beach beard beast began bench berry birth black blade
blame blank blend bless block blood board boost brain brand bread break brick bride brief bring
broad brown brush build bunch cabin cable candy cargo carry catch cause chain chair chalk charm
chart chase cheap check chest chief child choir civic claim class clean clear clerk climb clock
cloth cloud coach coast color coral count court cover craft crane cream crisp crowd crown curve
cycle daily dairy dance depth diary dirty doubt dozen draft drama dream dress drink drive eager
early earth eight elbow empty enemy enjoy entry equal error event every exact extra fable faith
false fancy fault feast fence fever fiber field fight final first flame flesh float flood floor
flour focus force forge forty found frame fresh front frost fruit giant given glass globe glory
grace grade grain grand grant grape grass great green guard guest guide habit happy harsh heart
heavy honey horse hotel house human humor ideal image index inner input issue ivory jelly jewel
joint judge juice knife known label labor large later laugh layer learn lemon level light limit
linen local loose lucky lunch magic major maker maple march match mayor medal metal might minor
mixed model money month moral motor mount mouse mouth movie music naval nerve never night noble
noise north novel nurse ocean offer often olive onion orbit order other outer owner paint panel
paper party patch peace pearl phase phone photo piano piece pilot pitch place plain plane plant
plate point pound power press price pride prime print prize proof proud pulse queen quick quiet
quite radio raise range rapid reach ready realm rebel right rigid river robin robot rough round
route royal rural salad scale scene scope score sense serve seven shade shape share sharp sheep
shelf shell shift shine shirt shore short sight skill sleep slice small smart smile smoke snake
solid sound south space spare speak speed spice spoon sport squad stage stair stamp stand stare
start steam steel stick stone store storm story stove straw strip study style sugar sunny swing
sword table taste teach thank theme thick thing think third tiger tight title toast today token
tooth topic torch total touch tower trace track trade trail train treat trend trial tribe trick
truck trust truth uncle under union unity upper urban usage usual valid value video visit vital
vivid vocal voice waste watch water weary wheat wheel while white whole width woman world worry
worth wound wrist young youth zebra
""".split()


def _moves(said: str) -> list[str]:
    """The moves of a turn, after its thinking; 007 is 7."""
    begin = after_thinking(said)
    return (
        []
        if begin is None
        else [move.lower().lstrip("0") or "0" for move in _MOVE.findall(said, begin)]
    )


def _last_verdict(episode: rlvr.EpisodeRecord, secret: str) -> rlvr.Verdict:
    """CORRECT if the last move is the secret; a turn with several moves is none."""
    moves = _moves(episode.turns[-1].text) if episode.turns else []
    # Several moves in a turn would be a way to try more words than turns.
    if len(moves) != 1:
        return rlvr.Verdict(
            rlvr.Outcome.UNPARSED, why="no-move: the last turn has not one move in brackets"
        )
    if moves[0] != secret:
        return rlvr.Verdict(
            rlvr.Outcome.WRONG, why="not-found: the turns are used up", answer=moves[0]
        )
    return rlvr.Verdict(rlvr.Outcome.CORRECT, why="found", answer=moves[0])


def _moves_of(transcript: Sequence[Mapping[str, object]]) -> list[str]:
    return _moves(str(transcript[-1]["content"]))


@rlvr.register("guess-v1")
class Guess(rlvr.Environment):
    """Find a whole number; each wrong guess, such as [42], is answered by "higher" or "lower".

    Options:
        most: the greatest number; the smallest is 1.
    """

    domain = "games"
    turns: int = 7
    most: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("most", self.most, 2, 10**9)
        require_one_of("split", self.split, _SPLITS)

    def task(self, index: int) -> rlvr.Task:
        secret = rlvr.seeded(self.id, self.split, index).randint(1, self.most)
        prompt = (
            f"Guess my number. It is a whole number from 1 to {self.most}, and you have "
            f"{self.turns} guesses. "
            "Write one guess in each turn, in brackets, such as [1]."
        )
        return rlvr.Task(f"{self.id}/{self.split}/{self.most}/{index}", prompt, secret)

    def user(self, task: rlvr.Task, transcript: Sequence[Mapping[str, object]]) -> str | None:
        moves = _moves_of(transcript)
        # Digits of other scripts are decimal to Python, and no guess here.
        if len(moves) != 1 or not (moves[0].isascii() and moves[0].isdecimal()):
            return "Write one whole number in brackets."
        guess = int(moves[0])
        return (
            None if guess == task.reference else "Higher." if guess < task.reference else "Lower."
        )

    def verify(self, task: rlvr.Task, episode: rlvr.EpisodeRecord) -> rlvr.Verdict:
        return _last_verdict(episode, str(task.reference))

    def example_episode(self, task: rlvr.Task) -> list[str]:
        return [f"[{task.reference}]"]


@rlvr.register("wordle-v1")
class Wordle(rlvr.Environment):
    """Find an English word of five letters; each wrong guess, such as [crane], is
    answered letter by letter.

    The words of the splits differ.
    """

    domain = "games"
    turns: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("split", self.split, _SPLITS)

    def task(self, index: int) -> rlvr.Task:
        words = [
            word
            for word in _WORDS
            if hashlib.sha256(word.encode()).digest()[0] * 10 // 256 in _SPLITS[self.split]
        ]
        secret = rlvr.seeded(self.id, self.split, index).choice(words)
        prompt = (
            f"Find my English word of five letters in {self.turns} guesses. Write one guess in "
            "each turn, in brackets, such as [crane]. I answer with five signs: G for a letter in "
            "its place, Y for one in another place, - for one that the word does not have, or not "
            "once more."
        )
        return rlvr.Task(f"{self.id}/{self.split}/{index}", prompt, secret)

    def user(self, task: rlvr.Task, transcript: Sequence[Mapping[str, object]]) -> str | None:
        moves = _moves_of(transcript)
        if len(moves) != 1 or not re.fullmatch(r"[a-z]{5}", moves[0]):
            return "Write one word of five letters in brackets."
        return None if moves[0] == task.reference else marks(moves[0], task.reference)

    def verify(self, task: rlvr.Task, episode: rlvr.EpisodeRecord) -> rlvr.Verdict:
        return _last_verdict(episode, task.reference)

    def example_episode(self, task: rlvr.Task) -> list[str]:
        return [f"[{task.reference}]"]


def marks(guess: str, secret: str) -> str:
    """The five signs for a guess: a letter is marked as often as the secret has it, those in their
    place first.

    Args:
        guess, secret: words of five letters.
    """
    # Letters of the secret that were not met in their place, each as often as it is there.
    left = Counter(b for a, b in zip(guess, secret, strict=True) if a != b)
    signs = []
    for a, b in zip(guess, secret, strict=True):
        if a == b:
            signs.append("G")
        elif left[a] > 0:
            left[a] -= 1
            signs.append("Y")
        else:
            signs.append("-")
    return "".join(signs)

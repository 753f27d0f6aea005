"""Preference data from verified completions: pairs, labelled completions, right completions.

    rows ─▶ candidates of each task ─▶ pairs that are drawn
         ─▶ the texts of these, in a second reading of the file

A pair has a CORRECT and a WRONG completion of one task.  UNSCORED completions are in none: that
they could not be scored says nothing about them.  The columns are TRL's: prompt, chosen, rejected;
or prompt, completion, label.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from rlvr.data.filtering import key_of_task
from rlvr.data.formats import read_rows
from rlvr.data.lines import Line, Row
from rlvr.data.overlap import digest_of
from rlvr.data.rows import read_whole, usable
from rlvr.errors import DataError, brief
from rlvr.types import Outcome, Prompt, is_chat
from rlvr.validate import is_number, require_number, require_one_of, require_whole

__all__ = [
    "Candidate",
    "Drawn",
    "Form",
    "Labelled",
    "LabelledSteps",
    "PairReport",
    "PairRules",
    "TextPair",
    "draw",
    "draw_labelled",
    "draw_right",
    "preference_rows",
    "read_labelled",
    "read_pairs",
    "read_steps",
]

Form = Literal["pairs", "labels", "completions"]
"""Pairs for DPO, IPO and reward models; completions with labels for KTO; right
completions for fine-tuning."""

_SHORTER_WINS_LIMIT: Final = 0.6
"""Above this share of pairs in which the shorter completion is the chosen one, a
policy learns to be brief."""


@dataclass(frozen=True, slots=True)
class PairRules:
    """Which completions may stand in pairs, and how many pairs a task gives.

    Attributes:
        per_task: most pairs of a task; of labelled or right completions, most of each label.
        unparsed: take UNPARSED completions as wrong ones too; pairs with these teach the form of an
            answer.
        truncated: take truncated completions too; pairs with these teach to be brief.
        near: the greatest difference in length, as a share of the longer one, at which two
            completions count as near. Near pairs are drawn first.
        near_only: draw no others.
        seed: draws between completions that are equally good.

    Raises:
        UsageError: a number is out of its range.
    """

    per_task: int = 2
    unparsed: bool = False
    truncated: bool = False
    near: float = 0.2
    near_only: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        require_whole("per_task", self.per_task, 1)
        require_number("near", self.near, 0, 1)
        require_whole("seed", self.seed, 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is known of a completion when pairs are drawn.

    Attributes:
        text: digest of its text; equal texts are drawn once.
        outcome: of its verdict.
        length: in tokens or in characters, the same for all candidates of a task.
        answer: the extracted answer, or a digest of it; None if there is none.
        value: credit, in [0, 1].
        total: the score; None if it was not computed.
        truncated: True if it hit the token limit.
    """

    text: bytes
    outcome: Outcome
    length: int
    answer: bytes | str | None = None
    value: float = 0.0
    total: float | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn from the completions of one task.

    Attributes:
        pairs: (chosen, rejected) as indices of candidates.
        left_out: why how many candidates could not be drawn.
        right, wrong: numbers of candidates that could be drawn.
    """

    pairs: Sequence[tuple[int, int]]
    left_out: Mapping[str, int]
    right: int
    wrong: int


def draw(candidates: Sequence[Candidate], rules: PairRules, *key: str | int) -> Drawn:
    """Pairs of one task: near ones in length first, and of these the ones with the most frequent
    wrong answers.

    Completions that stand in no pair yet come first; where these are used up, one may stand in
    several pairs.  No pair is drawn twice.

    Args:
        candidates: completions of the task.
        rules: see `PairRules`.
        key: with the seed, fixes the draw; such as the task's id and the step.
    """
    right, wrong, left_out = _usable(candidates, rules)
    by_length = sorted(right, key=lambda i: (candidates[i].length, _lot(candidates[i], rules, key)))
    losers = _by_frequency(candidates, wrong, rules, key)
    pairs: dict[tuple[int, int], None] = {}
    for near, unused in itertools.product(
        (True,) if rules.near_only else (True, False), (True, False)
    ):
        for loser in itertools.chain.from_iterable(
            itertools.repeat(losers, 1 if unused else rules.per_task)
        ):
            if len(pairs) >= rules.per_task:
                break
            used_winners = {w for w, paired_loser in pairs if unused or paired_loser == loser}
            if unused and any(loser == paired_loser for _, paired_loser in pairs):
                continue
            winner = _nearest(candidates, by_length, candidates[loser].length, used_winners)
            if winner is not None and (
                not near or _is_near(candidates[winner].length, candidates[loser].length, rules)
            ):
                pairs[winner, loser] = None
    return Drawn(list(pairs), left_out, len(right), len(wrong))


def draw_labelled(candidates: Sequence[Candidate], rules: PairRules, *key: str | int) -> list[int]:
    """At most `per_task` right and `per_task` wrong completions of a task, as indices.

    Args:
        candidates, rules, key: see `draw`.
    """
    right, wrong, _ = _usable(candidates, rules)
    chosen = sorted(right, key=lambda i: _lot(candidates[i], rules, key))[: rules.per_task]
    return chosen + _by_frequency(candidates, wrong, rules, key)[: rules.per_task]


def draw_right(candidates: Sequence[Candidate], rules: PairRules, *key: str | int) -> list[int]:
    """At most `per_task` right completions of a task, those with the greatest score first, as
    indices.

    Args:
        candidates, rules, key: see `draw`.
    """
    right, _, _ = _usable(candidates, rules)

    def worse(i: int) -> tuple[float, bytes]:
        candidate = candidates[i]
        return -(candidate.value if candidate.total is None else candidate.total), _lot(
            candidate, rules, key
        )

    return sorted(right, key=worse)[: rules.per_task]


def _is_near(length: int, other: int, rules: PairRules) -> bool:
    """Whether two lengths differ by at most `rules.near` of the greater one.

    Args:
        length, other: of two completions.
        rules: see `PairRules`.
    """
    return abs(length - other) <= rules.near * max(length, other)


def _usable(
    candidates: Sequence[Candidate], rules: PairRules
) -> tuple[list[int], list[int], Counter[str]]:
    """Indices of right and of wrong completions, each text once; and why others are left out."""
    right: dict[bytes, int] = {}
    wrong: dict[bytes, int] = {}
    left_out: Counter[str] = Counter()
    for i, candidate in enumerate(candidates):
        if candidate.outcome is Outcome.UNSCORED:
            left_out["unscored"] += 1
        elif candidate.outcome is Outcome.UNPARSED and not rules.unparsed:
            left_out["unparsed"] += 1
        elif candidate.truncated and not rules.truncated:
            left_out["truncated"] += 1
        else:
            side = right if candidate.outcome is Outcome.CORRECT else wrong
            if side.setdefault(candidate.text, i) != i:
                left_out["duplicate"] += 1
    for text in (
        right.keys() & wrong.keys()
    ):  # such as by a verifier that looks at more than the text
        del right[text], wrong[text]
        left_out["right and wrong"] += 2
    return list(right.values()), list(wrong.values()), left_out


def _by_frequency(
    candidates: Sequence[Candidate],
    wrong: Sequence[int],
    rules: PairRules,
    key: Sequence[str | int],
) -> list[int]:
    """Wrong completions, those with the most frequent answer first; all copies of a text count."""
    votes = Counter(
        candidate.answer for candidate in candidates if candidate.outcome is Outcome.WRONG
    )
    votes[None] = 0  # no answer is no frequent one
    return sorted(
        wrong, key=lambda i: (-votes[candidates[i].answer], _lot(candidates[i], rules, key))
    )


def _lot(candidate: Candidate, rules: PairRules, key: Sequence[str | int]) -> bytes:
    """The place of a completion among equals.  A hash of its text: the order of the file does not
    matter."""
    return digest_of([candidate.text.hex(), str(rules.seed), *map(str, key)])


def _nearest(
    candidates: Sequence[Candidate], by_length: Sequence[int], length: int, barred: set[int]
) -> int | None:
    """The right completion whose length is nearest; None if all are barred."""
    up = bisect_left(by_length, length, key=lambda i: candidates[i].length)
    down = up - 1
    while up < len(by_length) and by_length[up] in barred:
        up += 1
    while down >= 0 and by_length[down] in barred:
        down -= 1
    sides = [by_length[at] for at in (down, up) if 0 <= at < len(by_length)]
    return min(sides, key=lambda i: abs(candidates[i].length - length), default=None)


# ----------------------------------------------------------------------------------- what was drawn


@dataclass(slots=True)
class PairReport:
    """Counts over the tasks of a file or of a training step.

    Attributes:
        tasks: number of tasks.
        paired: tasks that gave a pair.
        all_right, all_wrong: tasks whose usable completions are all right, or all wrong.
        pairs: number of pairs.
        near: pairs of nearly equal length.
        shorter_wins: pairs whose chosen completion is the shorter one; `equal`: those of equal
            length.
        chosen_length, rejected_length: sums of lengths.
        left_out: why how many completions could not be drawn.
    """

    tasks: int = 0
    paired: int = 0
    all_right: int = 0
    all_wrong: int = 0
    pairs: int = 0
    near: int = 0
    shorter_wins: int = 0
    equal: int = 0
    chosen_length: int = 0
    rejected_length: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, candidates: Sequence[Candidate], drawn: Drawn, rules: PairRules) -> None:
        """Count one task.

        Args:
            candidates: its completions.
            drawn: what was drawn from them.
            rules: by which.
        """
        self.tasks += 1
        self.paired += bool(drawn.pairs)
        self.all_right += drawn.right > 0 and not drawn.wrong
        self.all_wrong += drawn.wrong > 0 and not drawn.right
        self.left_out.update(drawn.left_out)
        for winner, loser in drawn.pairs:
            chosen, rejected = candidates[winner].length, candidates[loser].length
            self.pairs += 1
            self.near += _is_near(chosen, rejected, rules)
            self.shorter_wins += chosen < rejected
            self.equal += chosen == rejected
            self.chosen_length += chosen
            self.rejected_length += rejected

    @property
    def shorter_share(self) -> float:
        """Share of the pairs of unequal length whose chosen completion is the shorter one; ½ if
        there are none."""
        unequal = self.pairs - self.equal
        return self.shorter_wins / unequal if unequal else 0.5

    @property
    def teaches_brevity(self) -> bool:
        """Whether `shorter_share` is above the limit, in at least 20 pairs of unequal length."""
        return self.pairs - self.equal >= 20 and self.shorter_share > _SHORTER_WINS_LIMIT

    def metrics(self) -> dict[str, float]:
        """The counts as metrics for a training log."""
        n = max(1, self.pairs)
        return {
            "pairs": float(self.pairs),
            "pair_tasks": float(self.paired),
            "tasks_all_right": float(self.all_right),
            "tasks_all_wrong": float(self.all_wrong),
            "chosen_length": self.chosen_length / n,
            "rejected_length": self.rejected_length / n,
            "shorter_wins": self.shorter_share,
        }

    def as_dict(self) -> dict[str, object]:
        """The counts as plain JSON."""
        share = self.near / self.pairs if self.pairs else 0.0
        return {
            "tasks": self.tasks,
            **self.metrics(),
            "near": share,
            "left_out": dict(self.left_out),
        }


def preference_rows(
    path: Path,
    rules: PairRules,
    *,
    form: Form = "pairs",
    margin_scale: float | None = None,
    left_out: Callable[[Line, str], object] | None = None,
) -> tuple[Iterator[dict[str, object]], PairReport]:
    """Rows of preference data, in TRL's columns, and counts; from a file that `rlvr score` wrote.

    The file is read twice: once here, and once when the rows are taken.  In memory are a few
    hundred bytes for each completion, and the texts of pairs of which one side was read.

    Args:
        path: a file with prompt, completion and outcome in each row; a pipe cannot be read twice.
        rules: see `PairRules`.
        form: see `Form`.
        margin_scale: give each pair a column `margin`, this times the difference of the verdicts'
            credit; None for no such column.
        left_out: is told each line that cannot be used, and why; None if the first is an error.

    Raises:
        DataError: no row can be used; or, without `left_out`, one cannot.
    """
    require_one_of("form", form, get_args(Form))
    if margin_scale is not None:
        require_number("margin_scale", margin_scale, above=0)
    tasks: dict[bytes, list[tuple[int, Candidate, int]]] = {}
    in_tokens = True
    for line, (key, candidate, characters) in usable(read_rows(path), _candidate, path, left_out):
        in_tokens = in_tokens and isinstance((line.row or {}).get("length_tokens"), int)
        tasks.setdefault(key, []).append((line.number, candidate, characters))
    report = PairReport()
    texts_by_row: dict[
        int, list[tuple[int, int]]
    ] = {}  # number of a row: (number of the output row, side)
    row_fields: list[dict[str, object]] = []
    for key, numbered in tasks.items():
        numbers = [number for number, _, _ in numbered]
        candidates = [
            candidate if in_tokens else replace(candidate, length=characters)
            for _, candidate, characters in numbered
        ]
        drawn_pairs = draw(candidates, rules, key.hex())
        report.add(candidates, drawn_pairs, rules)
        for sides, fields in _outputs(
            form, candidates, drawn_pairs, rules, key.hex(), margin_scale
        ):
            for side, i in enumerate(sides):
                texts_by_row.setdefault(numbers[i], []).append((len(row_fields), side))
            row_fields.append(fields)
    tasks.clear()
    return _with_texts(path, texts_by_row, row_fields, form), report


def _outputs(
    form: Form,
    candidates: Sequence[Candidate],
    drawn: Drawn,
    rules: PairRules,
    key: str,
    margin_scale: float | None,
) -> Iterator[tuple[tuple[int, ...], dict[str, object]]]:
    """(indices of completions, columns beside the texts) of each output row of a task."""
    if form == "pairs":
        for winner, loser in drawn.pairs:
            chosen, rejected = candidates[winner], candidates[loser]
            # All pairs of a task together weigh as much as one task.
            fields: dict[str, object] = {"weight": 1 / len(drawn.pairs)}
            if margin_scale is not None:
                fields["margin"] = margin_scale * (chosen.value - rejected.value)
            yield (
                (winner, loser),
                fields
                | {"chosen_truncated": chosen.truncated, "rejected_truncated": rejected.truncated},
            )
        return
    indices = (draw_labelled if form == "labels" else draw_right)(candidates, rules, key)
    for i in indices:
        label = {"label": candidates[i].outcome is Outcome.CORRECT} if form == "labels" else {}
        yield (i,), {**label, "weight": 1 / len(indices), "truncated": candidates[i].truncated}


def _with_texts(
    path: Path,
    wanted: Mapping[int, Sequence[tuple[int, int]]],
    about: Sequence[Mapping[str, object]],
    form: Form,
) -> Iterator[dict[str, object]]:
    names = ("chosen", "rejected") if form == "pairs" else ("completion",)
    halves: dict[int, dict[str, object]] = {}
    # In a second pass over the file, as all texts may not fit into memory.
    for line in read_rows(path):
        row = line.row or {}
        for output, side in wanted.get(line.number, ()):
            texts = halves.setdefault(output, {"task": str(row.get("task") or row.get("id") or "")})
            texts["prompt"] = row["prompt"]
            text = row["completion"]
            # After a chat the completion is a message, as TRL's data sets have it.
            texts[names[side]] = (
                text if isinstance(row["prompt"], str) else [{"role": "assistant", "content": text}]
            )
            if all(name in texts for name in names):
                del halves[output]
                yield {"prompt": texts["prompt"], **{name: texts[name] for name in names}} | {
                    **about[output],
                    "task": texts["task"],
                }


def _candidate(row: Row, number: int) -> tuple[bytes, Candidate, int]:
    """The key of a row's task, its completion without the text, and the text's characters."""
    for name in ("prompt", "completion", "outcome"):
        if name not in row:
            raise DataError(
                f"row {number} has no column {name!r}, it has {', '.join(map(repr, row))}; give "
                f"what `rlvr score` wrote"
            )
    prompt, text = row["prompt"], row["completion"]
    if not prompt or not _is_prompt(prompt):
        raise DataError(
            f"row {number}: the prompt is {brief(prompt)}; it must be a text, or a list of chat "
            f"messages"
        )
    if not isinstance(text, str):
        raise DataError(f"row {number}: the completion is {brief(text)}; it must be a text")
    try:
        outcome = Outcome(row["outcome"])
    except ValueError as error:
        raise DataError(f"row {number}: {error}") from None
    value, total, length = row.get("value"), row.get("total"), row.get("length_tokens")
    answer = row.get("answer")
    task_id = next(
        (str(row[name]) for name in ("task", "id") if row.get(name) is not None), f"row:{number}"
    )
    candidate = Candidate(
        # A digest tells equal completions without keeping them.
        digest_of([text]),
        outcome,
        int(length) if is_number(length) else 0,
        None if answer is None else digest_of([str(answer)]),
        float(value) if is_number(value) else float(outcome is Outcome.CORRECT),
        float(total) if is_number(total) else None,
        bool(row.get("truncated")),
    )
    return key_of_task(row, task_id, prompt), candidate, len(text)


# ------------------------------------------------------------------------------------------ reading


@dataclass(frozen=True, slots=True)
class TextPair:
    """A pair of completions of one prompt.

    Attributes:
        prompt: a text or chat messages.
        chosen, rejected: texts of the completions.
        weight: of the pair in the loss, above 0.
        margin: for reward models, 0 or above.
        chosen_truncated, rejected_truncated: True for a completion that has no end token.
    """

    prompt: Prompt
    chosen: str
    rejected: str
    weight: float = 1.0
    margin: float = 0.0
    chosen_truncated: bool = False
    rejected_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Labelled:
    """A completion that is known to be right or wrong.

    Attributes:
        prompt: a text or chat messages.
        completion: its text.
        label: True for right.
        weight: in the loss, above 0.
        truncated: True if it has no end token.
    """

    prompt: Prompt
    completion: str
    label: bool = True
    weight: float = 1.0
    truncated: bool = False


def read_pairs(path: Path) -> list[TextPair]:
    """Pairs from a file with the columns prompt, chosen and rejected, as `rlvr pairs` writes it and
    TRL takes it.

    Without a prompt, chosen and rejected are conversations, which begin with the same messages: the
    prompt.

    Args:
        path: the file.

    Raises:
        DataError: there is no pair; a row lacks a side, has two equal ones, or cannot be read.
    """
    pairs = []
    for number, row in enumerate(read_whole(path), 1):
        where = f"{path}, row {number}"
        missing = [name for name in ("chosen", "rejected") if row.get(name) is None]
        if missing:
            hint = "; rows with completion and label train with --algorithm kto" * (
                "completion" in row
            )
            raise DataError(
                f"{where} has no {' and no '.join(missing)}: a pair needs both sides, as `rlvr "
                f"pairs` writes them{hint}"
            )
        prompt, chosen, rejected = _split(row, where)
        if chosen == rejected:
            raise DataError(
                f"{where}: both sides are the same text, so that neither can be preferred; leave "
                f"it out"
            )
        pairs.append(
            TextPair(
                prompt,
                chosen,
                rejected,
                _number(row, "weight", 1.0, where, above=0),
                _number(row, "margin", 0.0, where, least=0),
                bool(row.get("chosen_truncated")),
                bool(row.get("rejected_truncated")),
            )
        )
    if not pairs:
        raise DataError(
            f"{path} has no rows; make pairs with `rlvr pairs scored.jsonl -o pairs.jsonl`"
        )
    return pairs


def read_labelled(path: Path, *, needs_both: bool) -> list[Labelled]:
    """Labelled completions from a file with the columns prompt, completion and label; or both sides
    of pairs.

    Args:
        path: the file.  Without the column `label` a completion is right.
        needs_both: refuse a file with right or wrong completions only.

    Raises:
        DataError: there is no row, one cannot be read, or all are of one label.
    """
    rows = read_whole(path)
    first = next(rows, None)
    # Files of pairs serve too: each side is a labelled completion.
    if (
        first is not None
        and "completion" not in first
        and ("chosen" in first or "rejected" in first)
    ):
        items = []
        for pair in read_pairs(path):
            items.append(
                Labelled(pair.prompt, pair.chosen, True, pair.weight, pair.chosen_truncated)
            )
            items.append(
                Labelled(pair.prompt, pair.rejected, False, pair.weight, pair.rejected_truncated)
            )
        return items
    items = [
        _read_labelled_row(row, f"{path}, row {number}")
        for number, row in enumerate(itertools.chain([] if first is None else [first], rows), 1)
    ]
    if not items:
        raise DataError(
            f"{path} has no rows; make some with `rlvr pairs scored.jsonl -o labels.jsonl --form "
            f"labels`"
        )
    labels = {example.label for example in items}
    if needs_both and len(labels) == 1:
        raise DataError(
            f"all {len(items)} rows of {path} have the label {items[0].label}, and right ones can "
            "be told from wrong ones only where there are both; add completions with the other "
            "label"
        )
    return items


@dataclass(frozen=True, slots=True)
class LabelledSteps:
    """A completion in steps, each with the outcomes of continuations from its end.

    Attributes:
        prompt: a text or chat messages.
        steps: the completion's parts, with what separates them.
        right: continuations from each step's end that were right; fractions are partial credit.
        scored: continuations that were scored; 0 leaves the step out of the loss.
    """

    prompt: Prompt
    steps: Sequence[str]
    right: Sequence[float]
    scored: Sequence[float]


def read_steps(path: Path) -> list[LabelledSteps]:
    """Labelled steps from a file with TRL's columns prompt, completions and labels, or with right
    and scored.

    A label alone counts as one continuation.

    Args:
        path: the file.

    Raises:
        DataError: there is no row, or one cannot be used.
    """
    labelled = [
        _steps(row, f"{path}, row {number}") for number, row in enumerate(read_whole(path), 1)
    ]
    if not any(count for steps in labelled for count in steps.scored):
        raise DataError(f"{path} has no step with a label; make some with `rlvr process-labels`")
    return labelled


def _steps(row: Row, where: str) -> LabelledSteps:
    steps = row.get("completions")
    if (
        not isinstance(steps, list)
        or not steps
        or not all(isinstance(step, str) and step for step in steps)
    ):
        raise DataError(
            f"{where}: completions is {brief(steps)}; it must be a list of texts, one for each step"
        )
    labels = row.get("labels")
    # A label of TRL's is one continuation, right or wrong.
    right: Any = labels if row.get("right") is None else row["right"]
    scored: Any = [1] * len(steps) if row.get("scored") is None else row["scored"]
    for name, values in (("labels or right", right), ("scored", scored)):
        if not isinstance(values, list) or len(values) != len(steps):
            raise DataError(
                f"{where}: {name} is {brief(values)}; it must be a list of {len(steps)}, one for "
                f"each step"
            )
    for k, count in zip(right, scored, strict=True):
        if not (isinstance(k, bool) or is_number(k)) or not is_number(count) or not 0 <= k <= count:
            raise DataError(
                f"{where}: {brief(k)} of {brief(count)} continuations are right; give 0 <= right "
                f"<= scored"
            )
    prompt = _prompt(row.get("prompt"), where)
    return LabelledSteps(
        prompt, steps, [float(k) for k in right], [float(count) for count in scored]
    )


def _read_labelled_row(row: Row, where: str) -> Labelled:
    if "prompt" not in row or "completion" not in row:
        raise DataError(
            f"{where} has no prompt or no completion, it has {', '.join(map(repr, row))}"
        )
    label = row.get("label", True)
    if not isinstance(label, bool):
        raise DataError(f"{where}: the label is {brief(label)}; it must be true or false")
    prompt = _prompt(row["prompt"], where)
    text = _text(row["completion"], prompt, "completion", where)
    return Labelled(
        prompt, text, label, _number(row, "weight", 1.0, where, above=0), bool(row.get("truncated"))
    )


def _split(row: Row, where: str) -> tuple[Prompt, str, str]:
    """Prompt and texts of a pair; a prompt that is not named is what both conversations begin
    with."""
    chosen, rejected = row["chosen"], row["rejected"]
    if row.get("prompt"):
        prompt = _prompt(row["prompt"], where)
        return (
            prompt,
            _text(chosen, prompt, "chosen", where),
            _text(rejected, prompt, "rejected", where),
        )
    if not (is_chat(chosen) and is_chat(rejected)):
        raise DataError(
            f"{where} has no prompt; only conversations can go without, as both begin with it"
        )
    shared = 0
    while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
        shared += 1
    prompt = _prompt(chosen[:shared], where)
    return (
        prompt,
        _text(chosen[shared:], prompt, "chosen", where),
        _text(rejected[shared:], prompt, "rejected", where),
    )


def _prompt(value: Any, where: str) -> Prompt:
    if not value or not _is_prompt(value):
        raise DataError(
            f"{where}: the prompt is {brief(value)}; it must be a text, or a list of chat messages"
        )
    prompt: Prompt = value
    return prompt


def _text(value: Any, prompt: Prompt, name: str, where: str) -> str:
    """The text of a completion: itself after a text, or the content of one message of the assistant
    after a chat."""
    if isinstance(value, str):
        return value
    if (
        not isinstance(prompt, str)
        and is_chat(value)
        and len(value) == 1
        and value[0].get("role") == "assistant"
    ):
        content = value[0]["content"]
        if isinstance(content, str):
            return content
    raise DataError(
        f"{where}: {name} is {brief(value)}; it must be a text or, after chat messages, a list "
        "with one message of the assistant"
    )


def _number(
    row: Row,
    name: str,
    default: float,
    where: str,
    *,
    least: float = -math.inf,
    above: float | None = None,
) -> float:
    value = row.get(name)
    return (
        default if value is None else require_number(f"{where}: {name}", value, least, above=above)
    )


def _is_prompt(value: object) -> bool:
    return isinstance(value, str) or is_chat(value)

"""Where a row of another tool has its prompt, reference and completion: by flags, or by
the name of a known layout.

    row ─ layout, or dotted paths of columns ─▶ prompt, reference, completions
        ─ one row for each completion ─▶ rows

A completion may be a text, chat messages (the last of the assistant counts), or a list of either:
then the row becomes as many rows, which answer one task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from rlvr.data.lines import Line, Row
from rlvr.errors import DataError, UsageError
from rlvr.types import JsonDict
from rlvr.validate import nearest

__all__ = ["Columns", "LAYOUTS", "likely", "missing_hint"]

_PER_COMPLETION = ("length_tokens", "truncated")
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Columns:
    r"""Which columns hold what.

        >>> [line] = Columns(reference="reward_model.ground_truth", completion="response").rows(
        ...     [Line(1, {"reward_model": {"ground_truth": "4"}, "response": "\\boxed{4}"})]
        ... )
        >>> line.row["reference"], line.row["completion"]
        ('4', '\\boxed{4}')

    Attributes:
        prompt, reference, completion, id: names of columns, or dotted paths into them
            (`choices.0.message.content`); None for the column of that name, or what the layout
            says.
        like: a name of `LAYOUTS`; "" for none.
        bare: completions are the answers alone: they are put into \boxed{}.

    Raises:
        UsageError: there is no such layout.
    """

    prompt: str | None = None
    reference: str | None = None
    completion: str | None = None
    id: str | None = None
    like: str = ""
    bare: bool = False

    def __post_init__(self) -> None:
        if self.like and self.like not in LAYOUTS:
            raise UsageError(
                f"no layout {self.like!r}; there is "
                f"{', '.join(LAYOUTS)}{nearest(self.like, LAYOUTS)}; or say where "
                "things stand by --prompt-column, --reference-column and --completion-column"
            )

    def __str__(self) -> str:
        pairs = [f"{name}={value}" for name, value in asdict(self).items() if value]
        return ", ".join(pairs) or "as they are named"

    def rows(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines with our columns; one that has several completions becomes as many.

        Args:
            lines: as `read_rows` gives them.
        """
        untouched = self == Columns()
        for line in lines:
            if line.row is None:
                yield line
                continue
            if untouched and isinstance(line.row.get("completion"), str):
                yield line
                continue
            try:
                split_rows = list(self._rows(line.row, line.number))
            except (DataError, LookupError, TypeError, ValueError, AttributeError) as error:
                why = (
                    str(error)
                    if isinstance(error, DataError)
                    else f"no row of the layout {self.like!r}: {error!r}"
                )
                yield Line(
                    line.number, None, why, json.dumps(line.row, default=str, ensure_ascii=False)
                )
                continue
            yield from (Line(line.number, row, checked=line.checked) for row in split_rows)

    def _rows(self, row: Row, number: int) -> Iterator[Row]:
        for part in LAYOUTS[self.like](row) if self.like else (dict(row),):
            for name in ("prompt", "reference", "id", "completion"):
                path = getattr(self, name)
                if path is not None:
                    value = _at(row, path)
                    # Away under its old name, so that it does not stand in the record twice.
                    part.pop(path, None)
                    part[name] = value
            yield from self._each(part, number)

    def _each(self, row: JsonDict, number: int) -> Iterator[Row]:
        completion = _plain(row.get("completion"))
        if not isinstance(completion, (list, dict)) and not (
            self.bare and isinstance(completion, str)
        ):
            yield row  # a text, or what is no completion, as the scorer will say
            return
        texts = _texts(completion)
        if self.bare:
            texts = [text if "\\boxed" in text else f"\\boxed{{{text.strip()}}}" for text in texts]
        if len(texts) == 1:
            yield row | {"completion": texts[0]}
            return
        name = str(row.get("id", f"line:{number}"))
        task = {"task": name} if "reference" in row and "task" not in row else {}
        for place, text in enumerate(texts):
            own_fields = {
                key: row[key][place] for key in _PER_COMPLETION if _is_one_each(row.get(key), texts)
            }
            yield row | task | own_fields | {"id": f"{name}/{place}", "completion": text}


def likely(columns: Iterable[str], what: str) -> str:
    """The column that may be what a row lacks; "" if none is known.

    Args:
        columns: the names that the row has.
        what: "completion" or "reference".
    """
    present = set(columns)
    return next((name for name in _LIKELY[what] if name.partition(".")[0] in present), "")


def missing_hint(columns: Iterable[str], what: str) -> str:
    """How an error of a row that lacks a column ends.

    Args:
        columns, what: see `likely`.
    """
    column = likely(columns, what)
    return f"; {column!r} may be the {what}" if column else f"; call the {what}'s column {what!r}"


_LIKELY = {
    "completion": (
        "response",
        "responses",
        "completions",
        "output",
        "outputs",
        "generation",
        "generations",
        "prediction",
        "predictions",
        "predict",
        "generated_text",
        "model_output",
        "text",
    ),
    "reference": (
        "ground_truth",
        "target",
        "gold",
        "answer",
        "solution",
        "expected",
        "expected_answer",
        "label",
        "labels",
        "gts",
        "reward_model.ground_truth",
    ),
}


def _is_one_each(value: object, texts: Sequence[str]) -> bool:
    return isinstance(value, list) and len(value) == len(texts)


def _at(row: Row, path: str) -> object:
    """The value at a dotted path; a column whose own name has dots comes first."""
    if path in row:
        return row[path]
    value: object = row
    for step in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step, _MISSING)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            value = _MISSING
        if value is _MISSING:
            raise DataError(f"no column {path!r}; it has {', '.join(map(repr, row))}")
    return value


def _plain(value: object) -> object:
    """Arrays as lists; a pandas frame has them."""
    return value.tolist() if hasattr(value, "tolist") else value


def _texts(value: object) -> list[str]:
    """The texts of completions.

    Raises:
        DataError: it holds none.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [_content(value)]
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return value
        if all(isinstance(item, Mapping) for item in value):
            replies = [item for item in value if item.get("role", "assistant") == "assistant"]
            if replies:
                return [_content(replies[-1])]
        elif all(isinstance(item, list) and item for item in value):
            return [text for item in value for text in _texts(item)]
    value_text = json.dumps(value, default=str)[:200]
    raise DataError(
        f"the completion is {value_text}; it must be a text, chat messages, or a list of either"
    )


def _content(message: Mapping[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            part["text"]
            for part in content
            if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    raise DataError(
        f"a message of the completion has the content {content!r:.100}; it must be a text"
    )


# ------------------------------------------------------------------------------------------ layouts


def _verl(row: Row) -> Iterator[dict[str, object]]:
    """verl: rollouts that its trainer dumps (`_dump_generations` of
    verl/trainer/ppo/ray_trainer.py: input, output, gts, score, step), and data files with the
    responses of verl/trainer/main_generation.py."""
    if "output" in row:
        yield _move_columns(row, prompt="input", completion="output", reference="gts")
        return
    if "responses" not in row:
        raise DataError(
            f"neither 'output' nor 'responses', as files of verl have; it has "
            f"{', '.join(map(repr, row))}"
        )
    yield _move_columns(row, prompt="prompt", completion="responses") | {
        "reference": _at(row, "reward_model.ground_truth")
    }


def _trl(row: Row) -> Iterator[dict[str, object]]:
    """TRL: prompt and completion, as texts or messages (its page on dataset formats), as its
    trainers log them, with the answer in the column that the user's own data set has."""
    answer = next(
        (name for name in ("solution", "answer", "ground_truth", "reference") if name in row), None
    )
    yield _move_columns(
        row, prompt="prompt", completion="completion", **({"reference": answer} if answer else {})
    )


def _lighteval(row: Row) -> Iterator[dict[str, object]]:
    """lighteval: details with `doc` and `model_response` (its reference of Doc and ModelResponse,
    v0.13), or, before 0.10, `full_prompt`, `predictions` and `gold`."""
    if "doc" not in row:
        part = _move_columns(row, prompt="full_prompt", completion="predictions", reference="gold")
        part["reference"] = _one_or_all(part["reference"])
        yield part
        return
    doc, golds = row["doc"], row["doc"]["gold_index"]
    golds = golds if isinstance(golds, list) else [golds]
    remaining = {
        name: value for name, value in row.items() if name not in ("doc", "model_response")
    }
    yield remaining | {
        **(
            {"id": f"{doc.get('task_name', '')}/{doc['id']}"}
            if doc.get("id") not in (None, "")
            else {}
        ),
        "prompt": doc["query"],
        "reference": _one_or_all([doc["choices"][place] for place in golds]),
        "completion": _plain(row["model_response"]["text"]),
    }


def _inspect(row: Row) -> Iterator[dict[str, object]]:
    """inspect_ai: samples of a log (EvalSample in its reference of inspect_ai.log); a log in JSON
    holds all of them."""
    for sample in row.get("samples", [row]):
        output = sample["output"]
        completion = output.get("completion") or _content(output["choices"][0]["message"])
        remaining = {name: sample[name] for name in ("metadata", "scores") if name in sample}
        target = sample.get("target")
        yield remaining | {
            "id": f"{sample['id']}/{sample.get('epoch', 1)}",
            "task": str(sample["id"]),
            "prompt": sample["input"],
            "completion": completion,
            **({"reference": _one_or_all(target)} if target not in (None, "") else {}),
        }


def _lm_eval(row: Row) -> Iterator[dict[str, object]]:
    """lm-evaluation-harness: `samples_*.jsonl` of --log_samples (lm_eval/evaluator.py, v0.4.9:
    doc_id, doc, target, arguments, resps, filter)."""
    # A list for each request of the document, and in it one text for each repeat.
    completion = row["resps"]
    while isinstance(completion, list) and len(completion) == 1 and isinstance(completion[0], list):
        completion = completion[0]
    if not (isinstance(completion, list) and all(isinstance(text, str) for text in completion)):
        raise DataError("its 'resps' are log-likelihoods, and there is no text to score")
    arguments = row["arguments"]
    prompt = arguments["gen_args_0"]["arg_0"] if isinstance(arguments, Mapping) else arguments[0][0]
    remaining = {
        name: value
        for name, value in row.items()
        if name not in ("resps", "arguments", "target", "filtered_resps")
    }
    name = f"{row['doc_id']}/{row['filter']}" if "filter" in row else str(row["doc_id"])
    yield remaining | {
        "id": name,
        "prompt": _plain(prompt),
        "reference": row["target"],
        "completion": completion,
    }


def _move_columns(row: Row, **names: str) -> dict[str, object]:
    """The row with these columns under our names."""
    for name in names.values():
        if name not in row:
            raise DataError(f"no column {name!r}; it has {', '.join(map(repr, row))}")
    remaining = {name: value for name, value in row.items() if name not in names.values()}
    return remaining | {target: _plain(row[source]) for target, source in names.items()}


def _one_or_all(value: object) -> object:
    """A list of one reference is that one; verifiers take a list as any of them."""
    value = _plain(value)
    return value[0] if isinstance(value, list) and len(value) == 1 else value


LAYOUTS: Final[Mapping[str, Callable[[Row], Iterator[dict[str, object]]]]] = {
    "inspect": _inspect,
    "lighteval": _lighteval,
    "lm-eval": _lm_eval,
    "trl": _trl,
    "verl": _verl,
}
"""How the files of other tools are read, by name; each says where its columns were looked up."""

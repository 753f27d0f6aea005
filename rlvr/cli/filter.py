"""`rlvr filter`: keeps the tasks that are worth training on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from rlvr.cli.arguments import (
    ChatFlag,
    InputFile,
    Overwrite,
    SystemText,
    TemplateOptions,
    chat_settings_of,
    require_outputs,
    say_if_unprotected,
    say_line,
)
from rlvr.cli.rejected import show_left_out
from rlvr.console import label_text
from rlvr.data.files import whole_file
from rlvr.data.formats import read_rows
from rlvr.data.lines import Line
from rlvr.data.rows import Journal, dump_row, read_whole, rejected_row
from rlvr.data.tokens import PromptFrame
from rlvr.display import LeftOut
from rlvr.errors import UsageError
from rlvr.samplers.chat import ChatSettings, prompts_line, recorded_format
from rlvr.text import one_line

__all__ = ["FilterCommand"]


@dataclass
class FilterCommand:
    """Keep the tasks that are worth training on: by pass rate, without duplicates,
    none from a test set.

    Example: rlvr filter scored.jsonl -o tasks.jsonl --min-rate 0.1 --tests test.jsonl

    Dropped tasks and rows that cannot be read are written to OUT.dropped.jsonl with the reason.
    Exit code 1 if no task is left.
    """

    file: InputFile
    """File that `rlvr score` wrote; or tasks with prompt and reference, if no rate is asked for."""
    output: Annotated[Path, arg(aliases=["-o"], metavar="OUT")]
    """Write the tasks that are kept to this file, .jsonl or .parquet,
    for `Environment.from_rows`."""
    min_rate: float = 0.0
    """Keep tasks whose pass rate is at least this."""
    max_rate: float = 1.0
    """Keep tasks whose pass rate is at most this."""
    min_n: int = 0
    """Keep tasks with at least this many scored rollouts."""
    by: Literal["rate", "interval"] = "rate"
    """rate: drop a task if its pass rate lies outside the limits;
    interval: only if its whole 95 % interval does."""
    strength: Annotated[Path | None, arg(metavar="REPORT")] = None
    """Report that `rlvr strength --every -o` wrote of these tasks; for --min-strength."""
    min_strength: float = 0.0
    """Keep tasks that refuse at least this share of wrong work; --by holds here too.
    Untested tasks are dropped."""
    tests: Path | None = None
    """File with a test set whose prompts must not be trained on, .jsonl or .parquet."""
    test_column: str = "prompt"
    """Column of the prompts in the test set."""
    prompt_column: str = "prompt"
    """Column of the prompts in FILE."""
    ngram: int = 13
    """Drop tasks that share this many words in a row with a test;
    of a shorter test all its words, from 4 up."""
    keep_duplicates: bool = False
    """Keep all tasks with the same prompt, instead of the first one."""
    near: float | None = None
    """Drop tasks that share at least this part of their 5-grams
    with an earlier task, such as 0.8."""
    max_characters: int | None = None
    """Drop tasks whose prompt has more characters than this."""
    max_tokens: int | None = None
    """Drop tasks whose prompt has more tokens than this, with what the chat template adds."""
    tokenizer: str | None = None
    """Count tokens with this tokenizer: a file tokenizer.json, the folder of a model,
    or its id on the hub."""
    chat: ChatFlag = "auto"
    system: SystemText = None
    template_option: TemplateOptions = ()
    processes: int | None = None
    """Number of processes that compare prompts;
    by default one per core, 0 for none but this one."""
    strict: bool = False
    """Stop at the first row that cannot be used, instead of leaving it out."""
    overwrite: Overwrite = False

    def run(self, out: Console, err: Console) -> int:
        from rlvr.data.filtering import FilterRules, Kept, filter_rows
        from rlvr.data.strengths import read_strengths

        rules = FilterRules(
            self.min_rate,
            self.max_rate,
            self.min_n,
            self.by,
            not self.keep_duplicates,
            self.near,
            self.ngram,
            self.max_characters,
            self.max_tokens,
            self.tokenizer,
            self._frame(err),
            None if self.strength is None else read_strengths(self.strength),
            self.min_strength,
        )
        dropped_path = Path(f"{self.output}.dropped.jsonl")
        rows = read_rows(self.file)
        say_if_unprotected(self.file, err)
        require_outputs(
            [self.output, dropped_path],
            [self.file, self.tests, self.strength],
            overwrite=self.overwrite,
        )
        tests = [] if self.tests is None else _column(self.tests, self.test_column)
        kept_count, dropped, unusable = 0, Counter[str](), LeftOut()
        with (
            whole_file(dropped_path) as dropped_file,
            Journal(self.output, overwrite=self.overwrite) as journal,
        ):

            def left_out(line: Line, why: str) -> None:
                unusable.add(f"line {line.number}", why)
                dropped["unusable"] += 1
                dropped_file.write(rejected_row(line, why))

            for row_result in filter_rows(
                rows,
                rules,
                tests,
                prompt=self.prompt_column,
                processes=self.processes,
                left_out=None if self.strict else left_out,
            ):
                if isinstance(row_result, Kept):
                    journal.write(row_result.row())
                    kept_count += 1
                else:
                    dropped_file.write(dump_row(row_result.row()))
                    dropped[row_result.reason] += 1
            if kept_count:
                journal.finish()
        if not kept_count and self.output.exists():
            self.output.unlink()  # or it would be taken for what was kept
            err.print(
                label_text("nothing is left:", f"removed the old {self.output}"),
                soft_wrap=True,
            )
        show_left_out(err, unusable, dropped_path)
        table = Table("", "tasks")
        table.add_row("kept", str(kept_count))
        for reason, count in dropped.most_common():
            table.add_row(reason, str(count))
        out.print(table)
        out.print(f"dropped tasks, with reasons: {one_line(dropped_path)}", soft_wrap=True)
        return int(not kept_count)

    def _frame(self, err: Console) -> PromptFrame | None:
        """What the tokenizer's chat template adds to a prompt; None where prompts go raw."""
        settings = chat_settings_of(self.chat, self.system, self.template_option)
        if self.tokenizer is None or settings.mode == "off":
            if settings != ChatSettings(settings.mode) or settings.mode == "on":
                raise UsageError(
                    "--chat, --system and --template-option count tokens: give --tokenizer"
                )
            return None
        path = Path(self.tokenizer)
        templates = ("tokenizer_config.json", "chat_template.jinja", "chat_template.json")
        alone = path.is_dir() and not any((path / name).is_file() for name in templates)
        if path.is_file() or alone:  # tokenizer.json has no template
            if settings != ChatSettings():
                raise UsageError(
                    f"--tokenizer {path} has no chat template; give the folder of the model, with "
                    f"{templates[0]}"
                )
            return None
        load_tokenizer = import_module("rlvr.train.loading").load_tokenizer
        tokens = import_module("rlvr.samplers.tokenization").Tokenization(
            load_tokenizer(self.tokenizer), (), chat=settings.after(recorded_format(self.tokenizer))
        )
        say_line(err, prompts_line(tokens.format))
        return tokens.template.frame if tokens.chat else None


def _column(path: Path, name: str) -> list[str]:
    values = []
    for number, row in enumerate(read_whole(path), 1):
        if not isinstance(row.get(name), str):
            raise UsageError(
                f"{path}, row {number}: no text in column {name!r}; it has "
                f"{', '.join(map(repr, row))}"
            )
        values.append(row[name])
    return values

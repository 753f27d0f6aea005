"""`rlvr verifiers`: lists the verifiers."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from rlvr.errors import MissingDependency
from rlvr.text import one_line
from rlvr.verifiers.named import PLACES, class_of, make_verifier

__all__ = ["VerifiersCommand"]


@dataclass
class VerifiersCommand:
    """List the verifiers that `rlvr score --verifier NAME` takes,
    each with a reference and an example.

    Example: rlvr verifiers

    The example is a reference and a completion that is right by it.  A setting is given by --option
    NAME=VALUE.
    """

    def run(self, out: Console, err: Console) -> int:
        names = (Column(title, no_wrap=True) for title in ("name", "id"))
        columns = (Column(title, overflow="fold") for title in ("settings", "reference", "example"))
        table = Table(*names, *columns)
        for name in PLACES:
            try:
                cls = class_of(name)
                settings = ", ".join(setting.name for setting in fields(cls) if setting.init)
                verifier = None if name == "judge" else make_verifier(name)
            except MissingDependency as error:
                table.add_row(name, "", "", Text(one_line(error), "red"), "")
                continue
            reference, example = cls.reference_example, ""
            if verifier is not None and reference is not None:
                example_text = verifier.example(reference)
                example = (
                    f"{json.dumps(reference)} → {example_text}"
                    if example_text
                    else json.dumps(reference)
                )
            table.add_row(name, cls.id, settings, cls.reference_form, example)
        out.print(table)
        return 0

"""Step files in a trainer's interpreter: safetensors' own library, since rlvr is not there."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from torch import Tensor, nn

__all__ = ["Step", "TrainerConventions", "main", "module_of", "stand_in_for", "trainer_name"]

TrainerConventions: TypeAlias = Mapping[str, object]
"""What a trainer decides where papers leave it open, by name: texts, numbers."""

_FAULTS = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NotImplementedError,
    RuntimeError, StopIteration, TypeError, ValueError,
)  # fmt: skip


class Step:
    """A case, and what a trainer makes of it.

    Args:
        path: of the case.

    Attributes:
        head: of the file; `case` in it says what the trainer has to do.
        arrays: by name.
        updates: the head of each optimiser step that was added.
    """

    def __init__(self, path: Path) -> None:
        from safetensors import safe_open

        with safe_open(path, "np") as file:
            self.head = json.loads(file.metadata()["step"])
            names = file.keys()  # the file itself cannot be iterated
            self.arrays: dict[str, np.ndarray] = {name: file.get_tensor(name) for name in names}
        self.case = self.head["case"]
        self.numbers = self.head["algorithm"]
        self.updates: list[dict[str, object]] = []

    def rows(self, name: str) -> list[np.ndarray]:
        """A flat array in rows.

        Args:
            name: of an array of tokens, or "prompt_ids".
        """
        ends = self.arrays["prompt_offsets" if name == "prompt_ids" else "offsets"]
        return [self.arrays[name][a:b] for a, b in pairwise(ends)]

    def pad(self, name: str, value: float = 0.0) -> np.ndarray:
        """A flat array as [B, T], padded on the right.

        Args:
            name: of an array of tokens.
            value: of the padding.
        """
        rows = self.rows(name)
        table = np.full((len(rows), max(map(len, rows))), value, dtype=rows[0].dtype)
        for line, row in zip(table, rows, strict=True):
            line[: len(row)] = row
        return table

    def flat(self, table: np.ndarray | Tensor) -> np.ndarray:
        """The rows of a table [B, T] one after the other, as float32.

        Args:
            table: padded on the right.
        """
        lengths = np.diff(self.arrays["offsets"])
        return np.concatenate(
            [np.asarray(row[:n], np.float32) for row, n in zip(table, lengths, strict=True)]
        )

    def add_update(
        self,
        rows: list[int],
        logprobs: list[np.ndarray],
        weights: list[np.ndarray],
        **head: object,
    ) -> None:
        """Add an optimiser step.

        Args:
            rows: of the batch, in the order of the arrays.
            logprobs, weights: of the tokens of each row.
            head: what the file says of it.
        """
        prefix = f"update{len(self.updates)}."
        order = np.array(rows, np.int32)
        self.arrays |= {
            prefix + "rows": order,
            prefix + "computed": order,
            prefix + "logprobs": np.concatenate(logprobs).astype(np.float32),
            prefix + "weights": np.concatenate(weights).astype(np.float32),
        }
        self.updates.append(head)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Log-probabilities under the policy, which carry the gradient, and those before the step;
        padded."""
        import torch

        old = "old_logprobs" if "old_logprobs" in self.arrays else "behaviour_logprobs"
        new = torch.tensor(self.pad("new_logprobs")).requires_grad_()
        return new, torch.tensor(self.pad(old))

    def add_gradient(self, new: Tensor, loss: Tensor) -> None:
        """Add an optimiser step of all rows.

        Args:
            new: the log-probabilities.
            loss: of them.
        """
        loss.backward()
        lengths = [len(ids) for ids in self.rows("token_ids")]
        self.add_update(
            list(range(len(lengths))),
            [row[:n].detach().numpy() for row, n in zip(new, lengths, strict=True)],
            [row[:n].numpy() for row, n in zip(new.grad, lengths, strict=True)],
            loss=float(loss),
        )

    def add_alone(self, model: nn.Module) -> None:
        """Add log-probabilities of one row at a time, unpadded, at the case's temperature, in both
        precisions, and in float64 at temperature 1.

        Args:
            model: that of all updates.
        """
        import torch

        temperature = self.case.get("temperature", 1.0)
        for name, dtype, heat in (
            ("alone_float32", torch.float32, temperature),
            ("alone", torch.float64, temperature),
            ("alone_at_one", torch.float64, 1.0),
        ):
            model = model.to(dtype).eval()
            row_logprobs = []
            rows = zip(self.rows("prompt_ids"), self.rows("token_ids"), strict=True)
            for prompt, ids in rows:
                tokens = torch.tensor([[*prompt.tolist(), *ids.tolist()]])
                with torch.no_grad():
                    logits = model(input_ids=tokens).logits[0, len(prompt) - 1 : -1] / heat
                logprobs = logits.log_softmax(dim=-1).gather(1, tokens[0, len(prompt) :, None])
                row_logprobs.append(logprobs[:, 0].double().numpy())
            for number in range(len(self.updates)):
                order = self.arrays[f"update{number}.computed"].tolist()
                self.arrays[f"update{number}.{name}"] = np.concatenate(
                    [row_logprobs[i] for i in order]
                )

    def write(self, path: Path, trainer: str, conventions: TrainerConventions) -> None:
        """Write the step.

        Args:
            path: of the file.
            trainer: name and version.
            conventions: of the trainer.
        """
        from safetensors.numpy import save_file

        head = {**self.head, "trainer": trainer, "conventions": dict(conventions)}
        head["updates"] = self.updates
        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        save_file(arrays, path, metadata={"step": json.dumps(head)})


def main(run: Callable[[Step], tuple[str, TrainerConventions]]) -> None:
    """Run a driver on each case of a folder: arguments are the folder, that of the answers, and a
    source's or "".

    A case that raises is answered by its error, in a file with the suffix .txt; one of several
    ranks ends them all, and the first rank writes.

    Args:
        run: takes a `Step`, fills it, and returns the trainer's name and version and its
            conventions.
    """
    cases, answers = Path(sys.argv[1]), Path(sys.argv[2])
    for path in sorted(cases.glob("*.safetensors")):
        try:
            step = Step(path)
            trainer = run(step)
            if os.environ.get("RANK", "0") == "0":
                step.write(answers / path.name, *trainer)
        except _FAULTS as error:  # the trainer's: it is the answer
            if "RANK" in os.environ:
                raise
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            (answers / path.with_suffix(".txt").name).write_text(text[:300])


def trainer_name(package: str) -> str:
    """A trainer's name and version, as its distribution says, in the source's folder or installed.

    Args:
        package: the distribution.
    """
    places = [place for place in (*sys.argv[3:4], *sys.path) if place]
    versions = [distribution.version for distribution in distributions(name=package, path=places)]
    return f"{package} {versions[0] if versions else 'of a folder'}"


def module_of(path: Path) -> ModuleType:
    """A module by its file, as its package imports much that its functions do not call.

    Args:
        path: of the file.
    """
    spec = importlib.util.spec_from_file_location(f"by_file_{path.parent.name}_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise NotImplementedError(f"there is no {path}; give the trainer's folder by --source")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def _as_decorator(kind: type, *args: object, **more: object) -> object:
    """What `@name` and `@name(…)` make of a function: the function."""
    return args[0] if args and callable(args[0]) else lambda function: function


def stand_in_for(names: tuple[str, ...]) -> list[str]:
    """Put the source first, and let packages that are not installed be imported as empty ones;
    those that were.

    Args:
        names: of packages that the functions under test do not call.
    """
    stand_ins: list[str] = []

    # a class whose attributes are such classes, as of a module that is imported by name
    class Kind(type):
        def __getattr__(cls, name: str) -> type:
            return make(name)

    def make(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return Kind(name, (), {"__new__": _as_decorator})

    class Empty(ModuleType):
        def __getattr__(self, name: str) -> type:
            return make(name)

    class Finder:
        def find_spec(
            self, name: str, path: object = None, target: object = None
        ) -> ModuleSpec | None:
            package = name.partition(".")[0]
            if package not in names:
                return None
            if package not in stand_ins:
                stand_ins.append(package)
            return importlib.util.spec_from_loader(
                name,
                self,  # type: ignore[arg-type]
                is_package=True,
            )

        def create_module(self, spec: ModuleSpec) -> ModuleType:
            return Empty(spec.name)

        def exec_module(self, module: ModuleType) -> None:
            module.__path__ = []

    sys.path[:0] = [folder for folder in sys.argv[3:4] if folder]
    sys.meta_path.append(Finder())  # type: ignore[arg-type]
    return stand_ins

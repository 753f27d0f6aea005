"""IFEval and IFBench: rows of a prompt and instructions whose observance can be counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import rlvr
from rlvr.verifiers.instructions import InstructionVerifier

__all__ = ["IFBench", "IFEval"]


@rlvr.register("ifeval-v2")
class IFEval(rlvr.SingleTurnEnv):
    """Prompts with 1 to 3 instructions each (arXiv:2311.07911); CORRECT if all are followed.

    Options:
        data: hub id, or a local file or folder with the columns `prompt`, `instruction_id_list` and `kwargs`, perhaps
            `key`, and `example` with an answer that follows all.
        policy, loose, share: see `InstructionVerifier`.  "reference" gives the published figures, "strict" pays for
            no empty answers.
    """

    domain = "instructions"
    _data: ClassVar[str] = "google/IFEval"
    data: str = ""
    policy: Literal["strict", "reference"] = "strict"
    loose: bool = False
    share: bool = False

    def __post_init__(self) -> None:
        verifier = InstructionVerifier(self.policy, self.loose, self.share)
        self.reward = rlvr.Correct(verifier)  # type: ignore[misc]  # an instance may shadow its class's reward

    def tasks(self) -> Iterator[rlvr.Task]:
        return self.tasks_in(self.data or self._data, key="key")

    def task_from(self, row: Mapping[str, Any], id: str = "row") -> rlvr.Task:
        kinds, arguments = row.get("instruction_id_list"), row.get("kwargs")
        if not isinstance(row.get("prompt"), str | list) or not isinstance(kinds, list):
            raise rlvr.DataError(
                f"{id}: needs 'prompt' and 'instruction_id_list'; it has {', '.join(map(repr, row))}"
            )
        if not isinstance(arguments, list) or len(arguments) != len(kinds):
            raise rlvr.DataError(
                f"{id}: 'kwargs' must be a list with one mapping for each of {len(kinds)} instructions"
            )
        asked = [
            {"kind": kind, "arguments": given or {}}
            for kind, given in zip(kinds, arguments, strict=True)
        ]
        try:
            reference = self.reference_of(asked)
        except rlvr.DataError as error:
            raise rlvr.DataError(f"{id}: {error}") from None
        meta = {"example": row["example"]} if row.get("example") else {}
        return rlvr.Task(id, row["prompt"], reference, meta)

    def reference_of(self, value: Any) -> list[dict[str, Any]]:
        """The instructions, with arguments that are None left out.

        Args:
            value: a list of mappings with `kind` and `arguments`.

        Raises:
            DataError: an instruction cannot be read.
        """
        read = InstructionVerifier().read(value)
        return [{"kind": one.kind.name, "arguments": _plain(one.arguments)} for one in read]

    def example(self, task: rlvr.Task) -> str | None:
        return task.meta.get("example")


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in arguments.items()
    }


@rlvr.register("ifbench-v2")
class IFBench(IFEval):
    """IFBench's prompts (arXiv:2507.02833), for evaluation: its 58 kinds are meant not to be trained on.

    Options:
        data, policy, loose, share: see `IFEval`; by default the hub's `allenai/IFBench_test`.
    """

    _data: ClassVar[str] = "allenai/IFBench_test"

"""What a `with` block closes at its end."""

from __future__ import annotations

from typing import Self

__all__ = ["Closing"]


class Closing:
    """Something with a `close`, which is called at the end of its `with` block."""

    def close(self) -> None:
        """Free what it holds.  Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

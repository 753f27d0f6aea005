"""What verifiers, authors and adapters need from the text of a completion."""

from __future__ import annotations

__all__ = ["squeezed"]


def squeezed(text: str) -> str:
    """The text without white space and case: by default, two answers that agree in this cast the same vote."""
    return "".join(text.split()).casefold()

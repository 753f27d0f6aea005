r"""Declarations of letters in an answer: `k\pi, k \in \mathbb{Z}`,
`f(x) = x \text{ for all real } x`.

A declared letter may have any name, so `-2 + 3t \text{ for some integer } t` is `-2 + 3x`; but its
declared range must not contradict that of the other side.
"""

from __future__ import annotations

import re

from rlvr.verifiers.math.words import unquoted

__all__ = ["declaration", "split_quantified"]

_WORDS = (
    r"(?:positive |negative |non ?negative |nonzero |real |rational |natural |whole |arbitrary |"
    r"odd |even )"
)
_KIND = r"(?:integers?|numbers?|reals?|constants?)"
_IN = r" ?\\in ?\\mathbb ?\{? ?(?P<set>[NZQRC]) ?\}?(?P<plus> ?[\^_] ?\{? ?[+*] ?\}?)?"
_IS = rf" (?:is |are |be )?(?:an? |any )?(?P<kind>{_WORDS}{{0,3}}{_KIND})"
# t, \\lambda, C_1, or several
_LETTERS = (
    r"(?P<letter>[a-zA-Z]|\\(?:lambda|mu|alpha|beta|theta|tau))(?: ?_ ?\{?\d\}?)?"
    r"(?:(?: and)? [a-zA-Z](?: ?_ ?\{?\d\}?)?){0,3}"
)
_SAID = re.compile(
    r"(?:for|where|with) (?:all |any |every |each |some )?(?:an? |any )?"
    rf"(?P<before>{_WORDS}{{0,3}}(?:{_KIND} )?)?"
    rf"{_LETTERS}(?:{_IN}|{_IS}| ?\\ge ?[01])?"
)
_DECLARED = re.compile(rf"(?P<before>){_LETTERS}(?:{_IN}|{_IS})")
# n \ge 1, n \ge 0: a counter, of which nothing else is said.
_FROM_ONE = re.compile(r"(?P<letter>[nkmj]) ?\\ge ?[01]")
_OPENER = re.compile(r"(?<![a-zA-Z])(?:for|where|with)(?![a-zA-Z])")


def split_quantified(text: str) -> tuple[str, str, str] | None:
    r"""Split `k\pi "where" k \in \mathbb{Z}` into what is said, the letter and its range; None if
    nothing is said."""
    at = 0
    # The last opener: "for x = 2 where k is an integer" declares k.
    for opener in _OPENER.finditer(text):
        at = opener.start()
    if at and (match := _SAID.fullmatch(_plain(text[at:]))):
        return text[:at].rstrip(' ",;('), match["letter"], _range(match)
    at = text.rfind("(")
    if (
        at > 0
        # k\pi (k \in \mathbb{Z}): brackets at the end, with a membership in them.
        and text[-1] == ")"
        and r"\in" in text[at:]
        and (match := _DECLARED.fullmatch(text[at + 1 : -1].strip()))
    ):
        return text[:at].rstrip(), match["letter"], _range(match)
    return None


def declaration(text: str) -> tuple[str, str] | None:
    r"""The letter and its range if the text says nothing else: `k \in \mathbb{Z}`, `"where" k "is
    an integer"`."""
    words = _plain(text)
    if counted := _FROM_ONE.fullmatch(words):
        return counted["letter"], ""
    match = _DECLARED.fullmatch(words) or (_SAID.fullmatch(words) if _OPENER.match(words) else None)
    return (match["letter"], _range(match)) if match else None


def _plain(text: str) -> str:
    return unquoted(text.replace("-", " ").replace(",", " "))


def _range(found: re.Match[str]) -> str:
    """`Z` and so on; `Z+` for positive integers; "" if nothing was said."""
    if found["set"]:
        is_counting = found["set"] == "N" or (found["plus"] and found["set"] == "Z")
        return "Z+" if is_counting else found["set"]
    words = f"{found['before'] or ''} {found['kind'] or ''}"
    is_integer = "integer" in words or "whole" in words
    if "natural" in words or ("positive" in words and is_integer):
        return "Z+"
    prefixes = (
        word for word in ("negative", "positive", "odd", "even", "nonzero") if word in words
    )
    base = "Z" if is_integer else "Q" if "rational" in words else "R" if "real" in words else ""
    return f"{next(prefixes, '')} {base}".strip()

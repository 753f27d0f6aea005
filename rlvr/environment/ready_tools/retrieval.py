"""A tool that searches texts by BM25 (Robertson and Zaragoza 2009), with the library bm25s."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rlvr.environment.tools import Tool, schema_of
from rlvr.errors import DataError, MissingDependency, ToolError, UsageError, brief
from rlvr.validate import require_whole

__all__ = ["Corpus", "search"]

_PASSAGE: Final = 1200  # characters of a passage that files are cut into
_QUERY: Final = 500  # characters of a query that are read
_SUFFIXES: Final = (".jsonl", ".md", ".txt")


class Corpus:
    """Passages that can be searched; make it once and share it among episodes.

    Args:
        source: a mapping from title to text; or a file or folder: each paragraph of .txt and .md
            files is a passage with the file's name as its title (long ones are cut), each line of
            .jsonl one with "title" and "text".

    Attributes:
        passages: (title, text) of each.

    Raises:
        MissingDependency: bm25s is not installed.
        UsageError: there is no text, or the source is none of these.
        DataError: a line cannot be read.
    """

    def __init__(self, source: Mapping[str, str] | str | Path) -> None:
        if isinstance(source, Mapping):
            self.passages = [(str(title), str(text)) for title, text in source.items()]
        elif isinstance(source, (str, Path)):
            self.passages = _read(Path(source))
        else:
            raise UsageError(
                f"the corpus is {brief(source)}; give a mapping from title to text, a file or a "
                f"folder"
            )
        if not self.passages:
            raise UsageError(
                f"the corpus {brief(source)} has no passage; files must end in "
                f"{', '.join(_SUFFIXES)}"
            )
        self._bm25s = _library()
        self._lock = threading.Lock()
        self._index = self._bm25s.BM25()
        texts = [f"{title} {text}" for title, text in self.passages]
        self._index.index(self._words(texts), show_progress=False)

    def find(self, query: str, most: int) -> list[tuple[str, str]]:
        """The best passages for a query, the best first; of equal ones the first.  Those
        without a common word are none.

        Args:
            query: words.
            most: how many.
        """
        [words] = self._words([query[:_QUERY]])
        if not words:
            return []
        with self._lock:
            scores = self._index.get_scores(words).tolist()
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:most]
        return [self.passages[i] for i in order if scores[i] > 0]

    def _words(self, texts: list[str]) -> list[list[str]]:
        """The words of texts, of one letter or more, without English stop words."""
        tokens: list[list[str]] = self._bm25s.tokenize(
            texts,
            token_pattern=r"(?u)\b\w+\b",
            stopwords="english",
            return_ids=False,
            show_progress=False,
        )
        return tokens


def search(corpus: Corpus, *, most: int = 3, name: str = "search") -> Tool:
    """A tool that searches a corpus: `search(query)`.

    Args:
        corpus: what is searched.
        most: passages of a reply.
        name: that the policy calls it by.
    """
    require_whole("most", most, 1)

    def run(query: str) -> str:
        """Search for passages by keywords.

        Args:
            query: a few words that the passage should have.
        """
        if not query.strip():
            raise ToolError("the query is empty; give a few words")
        passages = corpus.find(query, most)
        return (
            "\n\n".join(f"[{i}] {title}\n{text}" for i, (title, text) in enumerate(passages, 1))
            or "nothing was found"
        )

    return schema_of(run, name=name, parallel=True)


def _library() -> Any:
    try:
        return importlib.import_module("bm25s")
    except ModuleNotFoundError:
        raise MissingDependency("bm25s, which searches texts,", "search") from None


def _read(path: Path) -> list[tuple[str, str]]:
    if not path.exists():
        raise UsageError(f"the corpus {path} does not exist")
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    passages: list[tuple[str, str]] = []
    for file in files:
        if file.suffix not in _SUFFIXES or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        passages += _lines(text, name) if file.suffix == ".jsonl" else _paragraphs(text, name)
    return passages


def _paragraphs(text: str, name: str) -> list[tuple[str, str]]:
    paragraphs = [paragraph.strip() for paragraph in text.split("\n\n")]
    return [
        (name, paragraph[at : at + _PASSAGE])
        for paragraph in paragraphs
        if paragraph
        for at in range(0, len(paragraph), _PASSAGE)
    ]


def _lines(text: str, name: str) -> list[tuple[str, str]]:
    passages = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            passages.append((str(row.get("title", name)), str(row["text"])))
        except (ValueError, KeyError, AttributeError) as error:
            raise DataError(f"{name}, line {number}: no object with a 'text': {error}") from None
    return passages

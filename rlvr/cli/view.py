"""`rlvr view`: scored files and runs in the browser.

Modules that need FastAPI, Jinja2 and DuckDB are imported when the command runs: `rlvr --help` loads
none of them.
"""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from rlvr import viewer
from rlvr.cli.arguments import Overwrite, require_outputs
from rlvr.console import label_text
from rlvr.data.files import real_path, write_whole
from rlvr.errors import UsageError
from rlvr.http import serve
from rlvr.http.keys import LEAST_KEY_LETTERS
from rlvr.text import one_line

if TYPE_CHECKING:
    from rlvr.viewer.labels import Labels

__all__ = ["ViewCommand"]


@dataclass
class ViewCommand:
    """Look at scored completions and training runs in the browser, until Ctrl-C.

    Example: rlvr view out.jsonl runs/a

    Shows what was given and nothing else, on this machine alone.  See docs/using/viewing.md.
    """

    paths: Annotated[
        Positional[tuple[Path, ...]], arg(metavar="PATH", help_behavior_hint="(at least one)")
    ]
    """Files that `rlvr score` wrote, .jsonl or .parquet,
    training runs, step files, and folders with such in them."""
    labels: Path | None = None
    """Keep what you say of verdicts, right or wrong, in this file, .jsonl;
    `rlvr audit` takes it.  Without it pages change nothing."""
    host: str = "127.0.0.1"
    """Address to listen on; an address that other machines can reach requires RLVR_API_KEY."""
    port: int = 8010
    """Port to listen on; 0 takes a free port and prints it."""
    without_key: bool = False
    """Listen without a password, even on an address that other machines can reach."""
    export: Path | None = None
    """Write one page that needs no server to this file, .html, instead of listening."""
    overwrite: Overwrite = False

    def run(self, out: Console, err: Console) -> int:
        if self.export is not None:
            require_outputs([self.export], list(self.paths), overwrite=self.overwrite)
        with viewer.Shown(self.paths) as sources:
            for why in sources.refused:
                err.print(label_text("left out:", why), soft_wrap=True)
            if self.export is not None:
                return self._export(self.export, sources, out, err)
            key = os.environ.get("RLVR_API_KEY", "").strip() or None
            if key is not None and self.host != "127.0.0.1" and len(key) < LEAST_KEY_LETTERS:
                raise UsageError(
                    f"RLVR_API_KEY has {len(key)} letters, too few where other machines can try "
                    f"it; use "
                    f"{LEAST_KEY_LETTERS} or more, such as those of `openssl rand -hex 16`"
                )
            names = (
                {self.host, socket.gethostname(), socket.getfqdn()}
                if self.host != "127.0.0.1"
                else set()
            )
            with serve.listen(
                self.host, self.port, beyond_this_machine=bool(key) or self.without_key
            ) as listening:
                host, port = listening.getsockname()[:2]
                where = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
                needs = "; the password is RLVR_API_KEY, for any user name" if key else ""
                out.print(
                    f"{where} shows {len(sources.all)}{needs}",
                    soft_wrap=True,
                )
                with self._labels() as labels:
                    app = viewer.viewer_app(sources, names=names, key=key, labels=labels)
                    viewer.run(app, listening)
        out.print("stopped")
        return 0

    def _labels(self) -> AbstractContextManager[Labels | None]:
        if self.labels is None:
            return nullcontext()
        if real_path(self.labels) in [real_path(path) for path in self.paths]:
            raise UsageError(f"{self.labels} is shown; the labels need a file of their own")
        return closing(viewer.Labels(self.labels))

    def _export(self, path: Path, sources: viewer.Shown, out: Console, err: Console) -> int:
        page = viewer.export(sources)
        errors = [why for source in sources.all for why in source.index.errors]
        for why in errors:
            err.print(label_text("not whole:", why), soft_wrap=True)
        if errors and not any(
            source.index.query("SELECT 1 FROM rows LIMIT 1") for source in sources.all
        ):
            raise UsageError("there is nothing to show")
        write_whole(path, page)
        out.print(one_line(path), soft_wrap=True)
        return int(bool(errors or sources.refused))

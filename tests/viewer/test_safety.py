"""Texts of a model are data, and only this machine may ask."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rlvr.viewer import Shown, export
from tests.json_lines import write_json_lines
from tests.viewer.made import record

HOSTILE = {
    "script": "<script>alert(1)</script><img src=x onerror=alert(1)></pre></article>",
    "quotes": "\"'><svg onload=alert(1)>{{ 7*7 }}{% raw %}",
    "ansi": "\x1b[2J\x1b]8;;http://evil\x07red\x00\x08\x7f\x9b",
    "right to left": "\u202egnorw\u2066\u200f si 4",
    "surrogate": "\ud800 and \udfff",
    "comment": "<!-- </title></style></script>]]>",
}
ALLOWED = set(
    "html head meta title link script style body header nav a main footer kbd h1 h2 h3 p form label select option "
    "input button section table caption tr td th span abbr div dl dt dd pre mark details summary article ul li figure "
    "figcaption svg path text polyline circle b strong code".split()
)


class Elements(HTMLParser):
    """Every element of a page, and what the page refers to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.references: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.references += [value for name, value in attrs if name in ("href", "src", "action")]


def require_harmless(page: str) -> None:
    """No element, attribute or address but our own; no control character."""
    found = Elements(page)
    assert set(found.names) <= ALLOWED
    assert not {name for name in found.attributes if name.startswith("on") or name == "style"}
    assert all(re.match(r"[/?#][^/]|[/?]$|#", it) for it in found.references), found.references
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", page
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_shown_as_text(name: str, tmp_path: Path, browse):
    """In every field that a record has, on every page."""
    text = HOSTILE[name]
    fields = dict.fromkeys(
        ("completion", "prompt", "reference", "why", "answer", "task", "env", "outcome", "id"), text
    )
    row = record(
        0, **fields, parts={text: 1.0}, detail={text: text}, meta={text: text}, config={text: text}
    )
    path = write_json_lines(tmp_path / "a.jsonl", [row, {**row, "outcome": "wrong"}])
    with path.open("ab") as file:
        file.write(text.encode("utf-8", "surrogatepass") + b"\n")
    client = browse(path)
    group = re.search(r'href="(/0/group[^"]*)"', client.get("/0/").text)
    assert group is not None
    addresses = [
        "/",
        "/0/rows?outcome=wrong",
        "/0/row/0",
        "/0/row/2",
        group[1].replace("&amp;", "&"),
    ]
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 200
        require_harmless(answer.text)
    require_harmless(
        client.get("/0/rows", params={"q": text.encode("utf-8", "replace"), "task": "<b>"}).text
    )
    with Shown([path]) as sources:
        require_harmless(export(sources).decode())


def test_script_tags_are_readable(tmp_path: Path, browse):
    """Shown as they were written, not taken away."""
    page = (
        browse(
            write_json_lines(
                tmp_path / "a.jsonl", [record(0, completion="<script>x</script>\x1b[1m")]
            )
        )
        .get("/0/row/0")
        .text
    )
    assert "&lt;script&gt;x&lt;/script&gt;\\u001b[1m" in page


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "\n" * 1_000_000, "\u202e<" * 500_000], ids=["long", "lines", "rtl"]
)
def test_a_long_text_is_cut_and_the_rest_can_be_seen(text: str, tmp_path: Path, browse):
    """A page holds 20,000 characters at once; the last piece and the whole plain text are a click away."""
    client = browse(
        write_json_lines(
            tmp_path / "a.jsonl",
            [record(i, completion=text + " END", answer="END") for i in range(3)],
        )
    )
    for address in ("/0/", "/0/row/0", "/0/group?task=sums/0&env=even"):
        assert len(client.get(address).content) < 300_000
    page = client.get("/0/row/0").text
    assert "of 1,000,004" in page
    last = re.search(r'href="(/0/row/0\?view=raw&amp;start=\d+)#answer"', page)
    assert last is not None
    assert '<mark id="answer">END</mark>' in client.get(last[1].replace("&amp;", "&")).text
    plain = client.get("/0/text/0/completion")
    assert plain.text == text + " END"
    assert plain.headers["content-type"] == "text/plain; charset=utf-8"
    assert plain.headers["x-content-type-options"] == "nosniff"


def test_many_line_breaks_are_counted(tmp_path: Path, browse):
    """An empty box would not say that the model wrote anything; the plain text has them all."""
    text = "first" + "\n" * 29 + "second" + "\n" * 5000 + "\\boxed{7}"
    client = browse(
        write_json_lines(tmp_path / "a.jsonl", [record(0, completion=text, answer="7")])
    )
    page = client.get("/0/row/0").text
    assert (
        "first"
        + "\n" * 29
        + 'second\n<span class="cut">… 5,000 line breaks …</span>\n\\boxed{<mark'
        in page
    )
    assert client.get("/0/text/0/completion").text == text


def test_pages_may_load_nothing_from_elsewhere(scored: Path, browse):
    """The policy stands on every answer, refusals included, and allows no inline script or style."""
    client = browse(scored)
    for address in (
        "/0/",
        "/0/text/0/completion",
        "/static/viewer.js",
        "/nowhere",
        "/0/rows?step=x",
    ):
        policy = client.get(address).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
    for path in ("style.css", "viewer.js"):
        assert not re.search(
            r"url\(|@import|https?:|innerHTML|eval", client.get(f"/static/{path}").text
        )


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8010", "localhost.evil.example", "127.0.0.1.evil", "", "@"],
)
def test_a_name_that_leads_here_is_refused(host: str, scored: Path, browse):
    """DNS rebinding: a page of evil.example lets its name lead to 127.0.0.1 and asks as its own."""
    answer = browse(scored).get("/0/", headers={"host": host})
    assert answer.status_code == 421
    assert "scored" not in answer.text


@pytest.mark.parametrize(
    "host", ["localhost:9", "127.0.0.1:8010", "[::1]:8010", "LOCALHOST", "10.0.0.7:80", "box:8010"]
)
def test_addresses_and_given_names_are_ours(host: str, scored: Path, browse):
    """An address cannot be rebound; a port may be forwarded to another one."""
    assert browse(scored, names=["box"]).get("/0/", headers={"host": host}).status_code == 200


def test_with_a_key_every_page_asks_for_it(scored: Path, browse):
    """As `rlvr serve` does, but in the way that browsers know."""
    client = browse(scored, key="s3cret")
    for given in (
        None,
        "Basic !!",
        "Bearer s3cret",
        "Basic " + base64.b64encode(b"me:wrong").decode(),
    ):
        answer = client.get("/0/", headers={"authorization": given} if given else {})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic")
    assert client.get("/static/style.css").status_code == 401
    assert client.get("/0/", auth=("anyone", "s3cret")).status_code == 200


@pytest.mark.parametrize(
    "address",
    [
        "/1/",
        "/-1/",
        "/99999999999999999999/",
        "/0/row/99",
        "/0/row/-1",
        "/0/row/99999999999999999999999",
        f"/{'9' * 5000}/",
        f"/0/row/{'9' * 5000}",
        f"/0/group?task=a&step={'9' * 5000}",
        "/\u0661/",
        "/0/text/0/config",
        "/0/text/0/..%2f..%2fetc%2fpasswd",
        "/static/..%2fapp.py",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/etc/passwd",
        "/docs",
        "/openapi.json",
        "/compare?a=0&b=5",
        "/compare?a=-1&b=0",
    ],
)
def test_what_was_not_given_cannot_be_reached(address: str, scored: Path, browse):
    """Shown have numbers, files have fixed names: no part of an address is a path."""
    answer = browse(scored).get(address)
    assert answer.status_code in (400, 404, 422)
    assert "root:" not in answer.text


def test_pages_are_read_only(scored: Path, browse):
    """No request changes anything."""
    client = browse(scored)
    assert {
        client.request(method, "/0/").status_code for method in ("POST", "PUT", "DELETE", "PATCH")
    } == {405}


def test_a_file_name_is_no_pattern(tmp_path: Path, browse):
    """Query engines read `*` and `[` in names as patterns; only the file of this very name is opened."""
    write_json_lines(tmp_path / "a.jsonl", [record(0, completion="other")])
    client = browse(write_json_lines(tmp_path / "[a]*.jsonl", [record(0, completion="this")]))
    assert "this" in client.get("/0/row/0").text
    assert "other" not in client.get("/0/").text

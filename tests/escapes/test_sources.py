"""Attack family: source texts that hurt the program that reads them."""

import dataclasses

import pytest

from tests.sandbox.sandboxes import SMALL

ROOMY = dataclasses.replace(SMALL, cpu_s=5.0, wall_s=12.0, memory_mib=256, disk_mib=64.0)


@pytest.mark.parametrize(
    ("source", "endings"),
    [
        (b"print(1)\0print(2)", ("CE",)),
        (b"\0", ("CE",)),
        (b"print('\xff\xfe')", ("CE",)),
        (b"# coding: utf-16\nprint(1)", ("CE",)),
        (b"# coding: no-such\nprint(1)", ("CE",)),
        (b"# coding: zlib\nprint(1)", ("CE",)),
        (b"# coding: undefined\nprint(1)", ("CE",)),
        (b"# coding: unicode_escape\nprint(1)\\u0000", ("CE", "OK", "RE")),
        (b"\xef\xbb\xbf# coding: latin-1\nprint(1)", ("CE",)),
        (b"\xff\xfe" + "print(1)".encode("utf-16-le"), ("CE",)),
        ("x = '\ud800'".encode("utf-8", "surrogatepass"), ("CE",)),
        (b"if 1:\n\tx\n        y", ("CE",)),
        (b"return", ("CE",)),
        (b"from __future__ import braces", ("CE",)),
        (b"x = " + b"9" * 5000, ("CE",)),
        (b"(" * 100_000, ("CE", "RE")),
        (b"x = " + b"-" * 300_000 + b"1", ("CE", "RE")),
        (b"x = " + b"[" * 90 + b"]" * 90, ("OK",)),
        (b"x = 1" + b"+1" * 100_000, ("CE", "RE", "OK")),
        (b"x" + b".x" * 100_000, ("CE", "RE")),
        (b"f(" * 5000 + b")" * 5000, ("CE", "RE")),
        (b"if 1:\n" + b"".join(b" " * n + b"if 1:\n" for n in range(1, 101)), ("CE",)),
        (b"lambda:" * 50_000 + b"1", ("CE", "RE")),
        (b"not " * 100_000 + b"1", ("CE", "RE", "OK")),
        (b"f'" + b"{" * 200 + b"x" + b"}" * 200 + b"'", ("CE", "OK")),
        (b"1 if 1 else " * 50_000 + b"1", ("CE", "RE", "OK")),
        (b"a = b = " * 50_000 + b"1", ("CE", "RE", "OK")),
        (b"x = (1,) * 10 ** 9", ("MLE", "RE", "TLE")),
        (b"x = 'a' * 2 ** 40", ("RE",)),
        (b"x = 7 ** 7 ** 7 ** 7", ("TLE", "MLE", "RE")),
    ],
)
def test_a_source_that_does_not_compile_is_its_author_s_fault(host, source, endings):
    """A verdict about the program, never our failure, and never a crash of more than its own process."""
    run = host.run(source, limits=dataclasses.replace(ROOMY, cpu_s=1.0, wall_s=4.0))
    assert run.ending in endings, run


def test_a_source_of_10_mb_is_read(host):
    """Long, but a program."""
    run = host.run(b"x = '" + b"a" * 10_000_000 + b"'\nprint(len(x))", limits=ROOMY)
    assert run.text == "10000000\n"


def test_a_source_of_many_statements_is_bounded(host):
    """10 MB of code objects take time and memory in the compiler: the program's own."""
    run = host.run(b"a = [1, 2, {}]\n" * 700_000, limits=dataclasses.replace(ROOMY, cpu_s=1.0))
    assert run.ending in ("TLE", "MLE", "CE", "OK")


def test_warnings_of_the_compiler_are_the_program_s_own(host):
    """An invalid escape is a warning on its stderr, no more."""
    run = host.run(rb"print('\d' is '\d')")
    assert run.ending == "OK"


@pytest.mark.parametrize("newline", [b"\r\n", b"\r", b"\n", b"\n\x0c"])
def test_every_end_of_line_is_one(host, newline):
    """Carriage returns and form feeds, as editors and models write them."""
    assert host.run(newline.join([b"if 1:", b"    x = 2", b"print(x)", b""])).text == "2\n"


def test_input_of_any_bytes_is_passed_on(host):
    """NUL, invalid UTF-8 and lone surrogates reach the program as they are."""
    run = host.run("import sys; print(sys.stdin.buffer.read())", b"\0\xff\x1b[2J\r\n")
    assert run.text == repr(b"\0\xff\x1b[2J\r\n") + "\n"
    assert host.run("import sys; print(len(sys.stdin.buffer.read()))", "\ud800").text == "3\n"


@pytest.mark.parametrize("language", ["bash", "javascript", "cpp"])
@pytest.mark.parametrize(
    "source", [b"\0\0\0", b"\xff\xfe\xfd", b"(" * 20_000, b"#!/nowhere\n", b""]
)
def test_other_languages_take_any_bytes(host, language, source):
    """It is a bad program in each of them, or none at all."""
    run = host.run(
        source, language=language, limits=dataclasses.replace(ROOMY, cpu_s=2.0, processes=32)
    )
    assert run.ending in ("OK", "RE", "CE", "MLE"), run

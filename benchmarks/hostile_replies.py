"""What do hostile replies and outputs cost the caller, and what the reader?

    python -m benchmarks.hostile_replies --replies 10000

A reply is what a program writes where the values of its functions are expected: raw bytes as well
as values.  Families of texts are written to be dear to read, in sizes from a few bytes to
megabytes: runs of digits, brackets, strings that never end, escapes, tags with the least and the
greatest content, keys that collide, arrays with many or long axes.  Then bytes of some are changed.
Outputs are 15 MiB long, and compared with expected ones as long, by each comparator.  Each is
judged as `CodeVerifier` judges it; anything that it raises ends this script.

CPU seconds of this process are those of its clock,
its memory is the growth of its greatest resident size (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlvr.sandbox.outputs import Output
from rlvr.sandbox.reader import read_aside, read_each, warm_reader
from rlvr.verifiers.code import COMPARATORS, CallCase
from rlvr.verifiers.code.reading import compare_outputs, judged_replies

GOAL_CPU_S, GOAL_MIB = 0.05, 32

Family = Callable[[random.Random, int], str]


def text(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"))


def repeated(*parts: str) -> Family:
    """A list of one part, drawn from these, again and again."""

    def make(rng: random.Random, size: int) -> str:
        part = rng.choice(parts)
        return "[" + ",".join([part] * max(1, size // (len(part) + 1))) + "]"

    return make


def mixed(*parts: str) -> Family:
    """A list of all these parts in turn."""
    every = ",".join(parts)
    return lambda rng, size: "[" + ",".join([every] * max(1, size // (len(every) + 1))) + "]"


def digits(rng: random.Random, size: int) -> str:
    """Runs of digits just below some length, inside of strings or outside."""
    run = rng.choice("019") * (
        rng.choice((99, 100, 101, 1999, 3999, 4000, 4299, 4300, 4301)) - rng.randint(0, 1)
    )
    run = rng.choice(('"%s"', "%s", "-%s", "0.%s", "1e%s", "%s.5e-300", "1.%se300")) % run
    return "[" + ",".join([run] * max(1, size // len(run))) + "]"


def nested(rng: random.Random, size: int) -> str:
    """Containers within containers, closed or not."""
    opens, closes = rng.choice((("[", "]"), ('{"tuple":[', "]}"), ('{"a":', "}")))
    depth = rng.choice((50, 99, 100, 299, 300, 301, 5000, size))
    depth = min(depth, size // len(opens))
    one = (
        opens * depth + rng.choice(("1", "", "[]")) + closes * (depth if rng.random() < 0.8 else 0)
    )
    return "[" + ",".join([one] * max(1, size // len(one))) + "]"


def collisions(rng: random.Random, size: int) -> str:
    """Keys with one hash, or with one way through a hash table."""
    n = max(2, size // rng.choice((8, 12, 20, 30)))
    kind = rng.randrange(4)
    if kind == 0:
        keys: list[Any] = [k * (2**61 - 1) for k in range(n)]
        keys = [k if k < 1 << 63 else {"int": hex(k)} for k in keys]
    elif kind == 1:  # the table's own sequence of places, and then numbers that walk along it
        places = 1 << max(3, (n * 2).bit_length())
        at, keys = 1, []
        for _ in range(n // 2):
            keys.append(at)
            at = (at * 5 + 1) % places
        keys += [(k << 40) + 1 for k in range(1, min(n // 2, 1 << 22))]
    elif kind == 2:
        shift = rng.randrange(10, 50)
        keys = [k << shift for k in range(n) if k << shift < 1 << 63]
    else:
        keys = [
            {"tuple": [k * (2**61 - 1) if k < 4 else {"int": hex(k * (2**61 - 1))}]}
            for k in range(n // 3)
        ]
    tag = rng.choice(("set", "frozenset", "dict", "counter", "ordered"))
    return text({tag: keys if "set" in tag else [x for key in keys for x in (key, 0)]})


def numbers(rng: random.Random, size: int) -> str:
    """Ints, decimals and fractions up to their bounds, alone or as keys."""
    n = min(size, rng.choice((20, 200, 2_000, 20_000, 1 << 20)))
    many = max(1, size // n)
    kind = rng.randrange(5)
    if kind == 0:
        some: list[Any] = [{"int": hex(rng.getrandbits(4 * n))} for _ in range(many)]
    elif kind == 1:
        sign = rng.choice(("", "-"))
        tail = rng.choice(("", "E+999999", "E-999999999999", "E+99999999999999999999"))
        some = [{"decimal": f"{sign}{'9' * min(n, 19_990)}{tail}"} for _ in range(many)]
    elif kind == 2:
        bits = min(4 * n // 2, 1 << 15)
        pair = rng.getrandbits(bits) | 1, rng.getrandbits(bits) | 1
        some = [{"fraction": [{"int": hex(x)} for x in pair]} for _ in range(max(1, many))]
    elif kind == 3:
        some = [
            {"fraction": [rng.randrange(1 << 62), rng.randrange(1, 1 << 62)]}
            for _ in range(max(1, size // 60))
        ]
    else:
        some = [{"decimal": f"{k}E+{rng.randrange(1 << 30)}"} for k in range(max(1, size // 30))]
    return text({"set": some} if rng.random() < 0.5 else some)


def odd(rng: random.Random, size: int) -> str:
    """Small texts that ask for much."""
    k = rng.choice((10, 1000, 100_000, 2_000_000, 1 << 40))
    names = [f"n{rng.randrange(10**6)}" for _ in range(rng.choice((1, 3, 250)))]
    one = rng.choice(
        (
            {"array": ["<i8", [k, 0], []]},
            {"array": ["<f8", [1] * 32, [1]]},
            {"array": ["O", [0, k], []]},
            {"array": ["<i8", [k] * (size // 20), []]},
            {"range": [0, k, 1]},
            {"named": ["P", names, *range(len(names))]},
            {"deque": [k, 1, 2]},
            {"timedelta": [k, k, k]},
            {"defaultdict": ["list", *range(2 * (size // 100))]},
        )
    )
    if "named" in one:
        made = [
            {"named": [f"P{i}", names, *range(len(names))]}
            for i in range(max(1, size // (10 * len(names) + 20)))
        ]
        return text(made)
    return "[" + ",".join([text(one)] * max(1, size // len(text(one)))) + "]"


def strings(rng: random.Random, size: int) -> str:
    part = rng.choice(("\\u0041", "\\ud800", "\\n", '\\"', "[{,", "a", "\\\\", "\x7f", "1,"))
    many = max(1, size // rng.choice((size + 2, 10, 100, 4000)))
    one = '"' + part * max(1, size // many // len(part)) + '"'
    whole = "[" + ",".join([one] * many) + "]"
    return whole if rng.random() < 0.7 else whole[: -rng.randint(1, 3)]


def objects(rng: random.Random, size: int) -> str:
    """Objects with many keys, none of them a tag."""
    return "{" + ",".join(f'"k{i}":{i % 10}' for i in range(max(1, size // 10))) + "}"


FAMILIES: dict[str, Family] = {
    "digits": digits,
    "nested": nested,
    "collisions": collisions,
    "numbers": numbers,
    "odd": odd,
    "strings": strings,
    "objects": objects,
    "small values": repeated(
        "1",
        "1.5",
        '""',
        '"a"',
        "[]",
        "null",
        "[[]]",
        "[1,[]]",
        "{}",
        "1e5",
        "0.1",
        "-1e-300",
        "9223372036854775807",
    ),
    "small tags": repeated(
        '{"set":[]}',
        '{"dict":[]}',
        '{"tuple":[]}',
        '{"float":"nan"}',
        '{"int":"0x1"}',
        '{"str":""}',
        '{"bytes":""}',
        '{"date":[1,1,1]}',
        '{"time":[1,1,1,1,0,null]}',
        '{"time":[1,1,1,1,0,[0,1,1]]}',
        '{"decimal":"1"}',
        '{"fraction":[1,2]}',
        '{"complex":[1.0,2.0]}',
        '{"range":[1,2,3]}',
        '{"deque":[null]}',
        '{"counter":[]}',
        '{"ordered":[]}',
        '{"defaultdict":[null]}',
        '{"opaque":""}',
        '{"ellipsis":0}',
        '{"timedelta":[1,1,1]}',
        '{"named":["P",[]]}',
        '{"named":["P",["x"],1]}',
        '{"frozenset":[]}',
        '{"array":["O",[1],[1]]}',
        '{"datetime":[1,1,1,1,1,1,1,0,null]}',
        '{"bytearray":""}',
        '{"set":[1]}',
        '{"dict":[1,1]}',
        '{"array":["O",[],[1]]}',
        '{"array":["O",[0],[]]}',
        '{"counter":[1,1]}',
        '{"type":"int"}',
    ),
    "mixed": mixed(
        '{"tuple":[1]}', "[]", "1", '"a"', '{"set":[{"tuple":[]}]}', "1.5", '{"dict":["a",[]]}'
    ),
}


def replies(
    count: int, seed: int = 0, most: int = 4 << 20, first: int = 0
) -> Iterator[tuple[str, bytes]]:
    """(family, bytes) of generated replies; each an answer to one call.

    Args:
        count: how many.
        seed: of the draws.
        most: greatest size in bytes; most replies are far smaller.
        first: the number of the first one's family.
    """
    rng = random.Random(seed)
    names = list(FAMILIES)
    for i in range(count):
        name = names[(first + i) % len(names)]
        size = (
            int(2 ** rng.uniform(4, 18))
            if i % 50
            else int(2 ** rng.uniform(18, most.bit_length() - 1))
        )
        body = FAMILIES[name](rng, min(size, most))
        data = f'[0,"{rng.choice(("value", "value", "items"))}",{body}]\n'.encode(
            "ascii", "replace"
        )
        if rng.random() < 0.2:
            changed = bytearray(data)
            for _ in range(rng.choice((1, 1, 3, 100))):
                changed[rng.randrange(len(changed))] = rng.choice(b'[]{},:"\\0123456789e-x\n \xff')
            data = bytes(changed)
        yield name, data


OUTPUTS: dict[str, Callable[[int], bytes]] = {
    "one line": lambda size: b"1" * size,
    "short lines": lambda size: b"1\n" * (size // 2),
    "numbers": lambda size: b"1.0 " * (size // 4),
    "different numbers": lambda size: b" ".join(b"%d.5" % i for i in range(size // 8)),
    "no text": lambda size: b"\xff" * size,
    "emoji": lambda size: "\U0001f600".encode() * (size // 4),
    "blanks": lambda size: b" " * size,
}
"""Outputs by a name, of about so many bytes."""


class Cost:
    """What a block of code costs this process.

    Attributes:
        cpu_s: CPU seconds.
        memory_mib: MiB by which it grew at most.
    """

    def __enter__(self) -> Cost:
        Path("/proc/self/clear_refs").write_text("5")  # the greatest size is the present one
        self._before, self._began = _peak_kib(), time.process_time()
        return self

    def __exit__(self, *exc: object) -> None:
        self.cpu_s = time.process_time() - self._began
        self.memory_mib = (_peak_kib() - self._before) / 1024

    def __repr__(self) -> str:
        return f"{self.cpu_s:.3f} CPU s, {self.memory_mib:.0f} MiB"


def _peak_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replies", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output-mib", type=int, default=15)
    options = parser.parse_args()
    warm_reader()
    case, worst, verdicts = CallCase("f", (), {}, 2), dict[str, list[float]](), Counter[str]()
    for name, data in replies(options.replies, options.seed):
        written = Output.of_text(data)
        with Cost() as cost:
            reading = read_each(judged_replies, 1, [case], written.lent())
        verdicts[reading.lost or (reading.records[0][0] if reading.records else "no reply")] += 1
        _keep(worst, name, cost, reading.cpu_s)
    for name, make in OUTPUTS.items():
        written = Output.of_text(make(options.output_mib << 20))
        other = Output.of_text(make(options.output_mib << 20)[:-8] + b"9999\n1 1")
        for comparator in COMPARATORS:
            for expected in (written, other):
                with Cost() as cost:
                    reading = read_aside(
                        compare_outputs,
                        comparator,
                        [(b"", written.lent(), expected.lent())],
                        True,
                        0,
                    )
                verdicts[reading.lost or reading.records[0][0]] += 1
                _keep(worst, f"output: {name}, {comparator}", cost, reading.cpu_s)
    print("| what | caller: CPU ms, at worst | MiB | reader: CPU s |\n|---|---|---|---|")
    for name, (cpu_s, mib, reader_s) in worst.items():
        print(f"| {name} | {cpu_s * 1e3:.1f} | {mib:.0f} | {reader_s:.2f} |")
    print(f"\nverdicts: {dict(verdicts)}")
    most_s, most_mib = (max(found[i] for found in worst.values()) for i in range(2))
    print(f"worst: {most_s * 1e3:.1f} CPU ms, {most_mib:.0f} MiB here; goal 50, {GOAL_MIB}")
    return int(most_s > GOAL_CPU_S or most_mib > GOAL_MIB)


def _keep(worst: dict[str, list[float]], name: str, cost: Cost, reader_s: float) -> None:
    found = [cost.cpu_s, cost.memory_mib, reader_s]
    worst[name] = list(map(max, worst.get(name, found), found))


if __name__ == "__main__":
    sys.exit(main())

"""What does a hostile reply cost the host?  CPU seconds to read generated replies, per MB and at worst.

    python -m benchmarks.hostile_replies --replies 10000

A reply is what a program writes where the values of its functions are expected: raw bytes as well as values.  Families
of texts are written to be dear to read, in sizes from a few bytes to megabytes: runs of digits, brackets, strings that
never end, escapes, tags with the least and the greatest content, keys that collide, empty arrays with long axes.
Then bytes of some are changed.  Each is read as the judge reads it; only `BadValue` and lost replies are allowed.

A reply above the goal is read a few times more, and the least counts, as other programs share the machine's caches.
The last line says how many seconds per MB the worst reply took.  Replies below 64 KiB count as 64 KiB: what they cost
is set-up, microseconds each.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Any

from rlvr.sandbox.guest.calls import CallReply, read_replies

LEAST = 64 << 10
GOAL_S_PER_MB = 0.2
AGAIN = 6

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
        "1", "1.5", '""', '"a"', "[]", "null", "[[]]", "[1,[]]", "{}", "1e5", "0.1", "-1e-300", "9223372036854775807"
    ),
    "small tags": repeated(
        '{"set":[]}', '{"dict":[]}', '{"tuple":[]}', '{"float":"nan"}', '{"int":"0x1"}', '{"str":""}', '{"bytes":""}',
        '{"date":[1,1,1]}', '{"time":[1,1,1,1,0,null]}', '{"time":[1,1,1,1,0,[0,1,1]]}', '{"decimal":"1"}',
        '{"fraction":[1,2]}', '{"complex":[1.0,2.0]}', '{"range":[1,2,3]}', '{"deque":[null]}', '{"counter":[]}',
        '{"ordered":[]}', '{"defaultdict":[null]}', '{"opaque":""}', '{"ellipsis":0}', '{"timedelta":[1,1,1]}',
        '{"named":["P",[]]}', '{"named":["P",["x"],1]}', '{"frozenset":[]}', '{"array":["O",[1],[1]]}',
        '{"datetime":[1,1,1,1,1,1,1,0,null]}', '{"bytearray":""}', '{"set":[1]}', '{"dict":[1,1]}',
        '{"array":["O",[],[1]]}', '{"array":["O",[0],[]]}', '{"counter":[1,1]}', '{"type":"int"}',
    ),
    "mixed": mixed('{"tuple":[1]}', "[]", "1", '"a"', '{"set":[{"tuple":[]}]}', "1.5", '{"dict":["a",[]]}'),
}  # fmt: skip


def replies(count: int, seed: int = 0, most: int = 4 << 20) -> Iterator[tuple[str, bytes]]:
    """(family, bytes) of generated replies; each an answer to one call.

    Args:
        count: how many.
        seed: of the draws.
        most: greatest size in bytes; most replies are far smaller.
    """
    rng = random.Random(seed)
    names = list(FAMILIES)
    for i in range(count):
        name = names[i % len(names)]
        size = (
            int(2 ** rng.uniform(4, 18))
            if i % 50
            else int(2 ** rng.uniform(18, most.bit_length() - 1))
        )
        body = FAMILIES[name](rng, size)
        data = f'[0,"{rng.choice(("value", "value", "items"))}",{body}]\n'.encode(
            "ascii", "replace"
        )
        if rng.random() < 0.2:
            changed = bytearray(data)
            for _ in range(rng.choice((1, 1, 3, 100))):
                changed[rng.randrange(len(changed))] = rng.choice(b'[]{},:"\\0123456789e-x\n \xff')
            data = bytes(changed)
        yield name, data


def cost(data: bytes) -> tuple[float, CallReply | None]:
    """CPU seconds to read one reply, and what it is."""
    began = thread_time()
    [reply] = read_replies(data, 1)
    return thread_time() - began, reply


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replies", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    worst: dict[str, tuple[float, float, int, bytes]] = {}
    size = total_s = 0.0
    for name, data in replies(options.replies, options.seed):
        took = cost(data)[0]
        size, total_s = size + len(data), total_s + took
        counted = max(LEAST, len(data)) / 1e6
        for _ in range(AGAIN if took > GOAL_S_PER_MB * counted else 0):
            took = min(took, cost(data)[0])
        per_mb = took / counted
        worst[name] = max(worst.get(name, (0.0, 0.0, 0, b"")), (per_mb, took, len(data), data[:60]))
    print(f"{options.replies} replies, {size / 1e6:.0f} MB, {total_s:.1f} CPU s\n")
    print("| family | worst CPU s per MB | took ms | bytes | begins |\n|---|---|---|---|---|")
    for name, (per_mb, took, length, begins) in sorted(worst.items(), key=lambda item: -item[1][0]):
        print(
            f"| {name} | {per_mb:.3f} | {took * 1e3:.1f} | {length} | `{begins.decode('ascii', 'replace')}` |"
        )
    most = max(found[0] for found in worst.values())
    print(f"\nworst: {most:.3f} CPU s per MB; goal {GOAL_S_PER_MB}")
    return int(most > GOAL_S_PER_MB)


if __name__ == "__main__":
    sys.exit(main())

"""Changes of a file: of its bytes as AFL makes them; of JSON, lines, archives and headers so that they stay such."""

from __future__ import annotations

import copy
import gzip
import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutator = Callable[[Random, bytes], bytes]

_BITS = (4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 31, 32, 53, 62, 63, 64)
INTEGERS = (0, 1, 7, 100, 1000, *(1 << bits for bits in _BITS), *((1 << bits) - 1 for bits in _BITS))
"""Sizes and the ends of machine numbers."""
TEXTS = (
    "",
    " ",
    "\0",
    "\n",
    "\x1b[31m",
    "\u202e",
    "\ud800",
    "é",
    "a" * 5000,
    "../../x",
    "/",
    "nan",
    "1e999",
    "{}",
    "%s%n",
    "-1",
    "9" * 5000,
    "\n::error::x",
    "\N{COMBINING ACUTE ACCENT}" * 20,
)
NUMBERS = (
    "9" * 5000,
    "9" * 400,
    "0" * 5000,
    "1e400",
    "-1e400",
    "1e-400",
    "-1",
    "0",
    "18446744073709551616",
    "nan",
    "²",
    "٣",
    "1_0",
)
"""What may stand where a number stood."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0.5,
    -1,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    {"": {}},
    *INTEGERS,
    10**400,
    *TEXTS,
)
LARGEST = 1 << 20
"""No mutation makes a file longer than this, beyond what it was."""


def damaged(random: Random, data: bytes, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    """One to eight changes of bytes, as AFL's havoc makes them; `others` are spliced in."""
    content = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 5, 8))):
        _change(random, content, words, others)
        if len(content) > len(data) + LARGEST:
            del content[len(data) + LARGEST :]
    return bytes(content)


def _change(random: Random, content: bytearray, words: Sequence[bytes], others: Sequence[bytes]) -> None:
    if not content:
        content += random.randbytes(random.randint(1, 64))
        return
    at = random.randrange(len(content))
    length = random.choice((1, 2, 4, 8, 16, 64, 256, 1024))
    kind = random.randrange(11)
    if kind == 0:
        content[at] ^= 1 << random.randrange(8)
    elif kind == 1:
        content[at] = random.randrange(256)
    elif kind == 2:
        content[at] = (content[at] + random.randint(-35, 35)) % 256
    elif kind == 3:  # an integer of interest, of some width and order
        width = random.choice((1, 2, 4, 8))
        number = random.choice(INTEGERS) & (1 << 8 * width) - 1
        content[at : at + width] = number.to_bytes(width, random.choice(("little", "big")))
    elif kind == 4:
        del content[at : at + length]
    elif kind == 5:
        content[at:at] = content[at : at + length] * random.choice((1, 1, 2, 50))
    elif kind == 6:  # a block moved, or over another
        to = random.randrange(len(content))
        content[to : to + length * random.randrange(2)] = content[at : at + length]
    elif kind == 7:
        content[at : at + length] = random.randbytes(length)
    elif kind == 8:
        del content[at:]
    elif kind == 9 and words:
        word = random.choice(words)
        content[at : at + len(word) * random.randrange(2)] = word
    elif others:  # the end of another file
        other = random.choice(others)
        content[at:] = other[random.randrange(len(other) + 1) :]


def lines(random: Random, data: bytes) -> bytes:
    """Lines taken out, doubled, moved, joined or with an odd text in them."""
    rows = data.splitlines(keepends=True) or [b""]
    for _ in range(random.choice((1, 1, 2, 4))):
        at, other = random.randrange(len(rows)), random.randrange(len(rows))
        kind = random.randrange(6)
        if kind == 0 and len(rows) > 1:
            del rows[at]
        elif kind == 1:
            rows[at:at] = [rows[other]] * random.choice((1, 2, 200))
        elif kind == 2:
            rows[at], rows[other] = rows[other], rows[at]
        elif kind == 3:
            rows[at] = rows[at].rstrip(b"\r\n") + rows[other]
        else:
            parts = rows[at].split(random.choice((b" ", b"=", b'"', b",")))
            value = random.choice(VALUES)
            parts[random.randrange(len(parts))] = (value if isinstance(value, str) else repr(value)).encode(
                "utf-8", "surrogatepass"
            )
            rows[at] = random.choice((b" ", b"=", b'"')).join(parts)
    return b"".join(rows)


def numbers(random: Random, data: bytes) -> bytes:
    """One to three numbers of a text replaced by others; a text without any gets one at its end."""
    found = list(re.finditer(rb"\d+(?:\.\d+)?", data))
    chosen = random.sample(found, min(len(found), random.choice((1, 1, 2, 3))))
    for match in sorted(chosen, key=lambda match: -match.start()):
        data = data[: match.start()] + _number(random) + data[match.end() :]
    return data if found else data + _number(random)


def _number(random: Random) -> bytes:
    return (NUMBERS[0] if random.random() < 0.3 else random.choice(NUMBERS)).encode()


def tree(random: Random, data: bytes) -> bytes:
    """JSON with other values, names, lists and depths; JSON still."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):  # it has been nested too deeply before
        return data
    for _ in range(random.choice((1, 1, 2, 4))):
        document = _other(random, document)
    text = json.dumps(document, ensure_ascii=random.random() < 0.5)
    if random.random() < 0.03:
        text = f"{'[' * 100_000}{text}"
    return text.encode("utf-8", "surrogatepass")


def _other(random: Random, node: Any, depth: int = 0) -> Any:
    if not isinstance(node, (dict, list)) or not node or random.random() < 0.15:
        kind = random.randrange(4)
        if kind == 0 and isinstance(node, (int, float)):
            return node * random.choice((-1, 2, 10**6, 10**18)) + random.choice((-1, 0, 1))
        if kind == 1 and isinstance(node, str):
            return node + random.choice(TEXTS)
        if kind == 2:
            return random.choice(([node], {"x": node}, [node] * 100))
        return copy.deepcopy(random.choice(VALUES))
    keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
    key = random.choice(keys)
    what = random.random()
    if what < 0.1:
        del node[key]
    elif what < 0.2 and isinstance(node, dict):
        node[random.choice((*map(str, keys), *TEXTS))] = node.pop(key)
    elif what < 0.3 and isinstance(node, list):
        node += [copy.deepcopy(node[key])] * random.choice((1, 3, 300))
    else:
        node[key] = _other(random, node[key], depth + 1)
    return node


def archive(words: Sequence[bytes], largest_record: int = 1 << 20) -> Mutator:
    """A zip file with one record, name or method changed; its checksums are right."""

    def change(random: Random, data: bytes) -> bytes:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as source:
                records = [
                    (record, source.read(record)) for record in source.infolist() if record.file_size <= largest_record
                ]
        except Exception:  # it was damaged before
            return data
        if not records:
            return data
        at = random.randrange(len(records))
        info, content = records[at]
        name, method = info.filename, info.compress_type
        kind = random.randrange(8)
        if kind < 4:
            content = damaged(random, content, words, [other for _, other in records])
        elif kind == 4:
            name = random.choice(
                (name.upper(), f"../{name}", name.rpartition("/")[2], name[:-1], f"{name}\u202e", "x" * 300)
            )
        elif kind == 5:
            method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        rows = [(record.filename, record.compress_type, text) for record, text in records]
        rows[at] = (name, method, content)
        if kind == 6:
            del rows[at]
        elif kind == 7:
            rows.append(random.choice(rows))
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as target, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a name that is there twice is meant
            for each, how, text in rows:
                target.writestr(zipfile.ZipInfo(each), text, compress_type=how)
        return out.getvalue()

    return change


def packed(random: Random, data: bytes) -> bytes:
    """The JSON in a gzip file changed."""
    try:
        document = json.loads(gzip.decompress(data))
        document = json.loads(random.choice((tree, numbers))(random, json.dumps(document).encode()))
        return gzip.compress(json.dumps(document).encode("utf-8", "surrogatepass"))
    except (OSError, EOFError, ValueError, AttributeError, TypeError, RecursionError):
        return data

"""The files that the command line reads: how one of each looks, how it may be changed, and what reads it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fuzz import recorded
from fuzz.mutate import Mutator, archive, damaged, lines, numbers, packed, tree

Words = Sequence[str]


@dataclass(frozen=True)
class Target:
    """A kind of file. `seeds` are good ones; `place` puts one into the current folder and gives the commands for it."""

    seeds: Callable[[], list[bytes]]
    place: Callable[[bytes], list[Words]]
    mutators: tuple[Mutator, ...] = ()
    words: tuple[bytes, ...] = field(default=())

    def case(self, random: Random) -> bytes:
        """One seed, changed."""
        seeds = self.seeds()
        data = random.choice(seeds)
        if self.mutators and random.random() < 0.6:
            data = random.choice(self.mutators)(random, data)
            if random.random() < 0.7:
                return data
        return damaged(random, data, self.words, seeds)


# --- what is read beside a recording


def _run_file() -> str:
    Path("run.anymps").write_bytes(recorded.seeds()[0])
    return "run.anymps"


@cache
def _baselines() -> list[bytes]:
    finding = {"id": "MPS201", "file": "train.py", "function": "main", "source": "loss.item()", "count": 2}
    return [json.dumps({"version": 1, "findings": [finding, {**finding, "id": "MPS301", "count": 1}]}).encode()]


def _baseline(data: bytes) -> list[Words]:
    Path("known.json").write_bytes(data)
    return [["report", _run_file(), "--baseline", "known.json"]]


def _settings_files() -> list[bytes]:
    return [
        b'[project]\nname = "x"\n\n[tool.anymps]\nmac = "M3 Pro 18GB"\nfail-on = "warning"\nbaseline = "known.json"\n'
        b'disable = ["MPS812"]\n\n[tool.anymps.severity]\nMPS201 = "error"\n\n[tool.anymps.per-file-disable]\n'
        b'"tests/*" = ["MPS201", "MPS301"]\n',
        b'tool.anymps = { disable = [], severity = { MPS101 = "info" } }\n[tool.other]\nx = 1979-05-27T07:32:00Z\n',
    ]


def _settings(data: bytes) -> list[Words]:
    Path("pyproject.toml").write_bytes(data)
    Path("known.json").write_bytes(_baselines()[0])
    return [["report", _run_file()]]


# --- what a Mac answered


@cache
def _answers() -> list[bytes]:
    from anymps.verify import write_answers
    from verify.answering import answers, computed, result

    found = answers(
        waits={"item": {"does": "computes", "value": "waits"}},
        operators={"forward x float32": {"samples": [computed(result(1.0, 2.0))], "operator": "x"}},
        faults={"MPS602": {**computed(result(1.0)), "reports": "sure"}},
    )
    with tempfile.TemporaryDirectory() as folder:
        write_answers(found, Path(folder, "file"))
        return [Path(folder, "file").read_bytes()]


def _verified(data: bytes) -> list[Words]:
    from anymps.commands import _verify
    from anymps.verify import read_answers

    _verify.ask = lambda *_, **__: read_answers(Path("good.gz"))
    Path("good.gz").write_bytes(_answers()[0])
    Path("mac.gz").write_bytes(data)
    return [["verify", "--read", "mac.gz"], ["verify", "--read", "mac.gz", "-v"]]


# --- PyTorch's own kernels


@cache
def _containers() -> list[bytes]:
    from kernel_files import ADD, bitcode, metallib

    return [metallib({"add_dense_float_float": bitcode(ADD), "b": b"BC\xc0\xde5"}), metallib({"a": b"BC\xc0\xde1234"})]


@cache
def _wheels() -> list[bytes]:
    from kernel_files import library, wheel

    with tempfile.TemporaryDirectory() as folder:
        return [
            wheel(Path(folder, "x.whl"), library("metal_basic", container), _release()).read_bytes()
            for container in _containers()
        ]


def _release() -> str:
    from anymps.rules import installed_torch

    return str(installed_torch().version).partition("+")[0]


def _wheel(data: bytes) -> list[Words]:
    Path("torch.whl").write_bytes(data)
    return [["kernels", "add", "torch.whl"]]


def _container(data: bytes) -> list[Words]:
    from anymps._cache import cache_home
    from kernel_files import library, wheel

    wheel(Path("torch.whl"), library("metal_basic", data), _release())
    folder = cache_home() / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"torch-{_release()}.metallib").write_bytes(data)
    return [["kernels", "list"], ["kernels", "add", "torch.whl"]]


# --- programs


def _notebooks() -> list[bytes]:
    cell = {
        "cell_type": "code",
        "id": "a1",
        "metadata": {},
        "source": ["x = 1\n", "x"],
        "outputs": [],
        "execution_count": 1,
    }
    shown = {"output_type": "stream", "name": "stdout", "text": "1"}
    other = {**cell, "id": "b2", "outputs": [shown]}
    book = {
        "cells": [cell, other, {"cell_type": "markdown", "id": "c3", "metadata": {}, "source": "# T"}],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    old = {
        "worksheets": [
            {"cells": [{"cell_type": "code", "input": "x", "language": "python", "outputs": []}], "metadata": {}}
        ],
        "metadata": {"name": ""},
        "nbformat": 3,
        "nbformat_minor": 0,
    }
    return [json.dumps(book).encode(), json.dumps(old).encode()]


def _notebook(data: bytes) -> list[Words]:
    from anymps import notebook
    from anymps._errors import UsageError

    def unexecuted(*_: object) -> Any:
        raise UsageError("the notebook is not run here")

    notebook.execute = unexecuted  # type: ignore[assignment]
    Path("x.ipynb").write_bytes(data)
    return [["run", "--no-report", "x.ipynb"]]


def _scripts() -> list[bytes]:
    return [
        b"import torch\n\n\ndef main():\n    x = torch.ones(3).cuda()\n    return x.item()\n\n\n"
        b"if __name__ == '__main__':\n    main()\n",
        "# -*- coding: latin-1 -*-\nx = 'é'\nimport parts.net\n".encode("latin-1"),
    ]


def _script(data: bytes) -> list[Words]:
    from anymps._errors import UsageError
    from anymps.fix import Runs

    def unexecuted(*_: object) -> Any:
        raise UsageError("the script is not run here")

    Runs.first = unexecuted  # type: ignore[method-assign]
    Path("s.py").write_bytes(data)
    return [["fix", "s.py"]]


def _texts() -> list[bytes]:
    return [
        b"take",
        b"10:30",
        b"sequence=512",
        b"M3 Pro 18-core GPU 18GB wired_limit_mb=9000",
        b"aten::take.out",
        b"*pool*",
        b"MPS201",
        b"M3 Pro 18GB, macOS 14.5",
        b"2.13",
        b"batch=8,bf16",
    ]


def _text(data: bytes) -> list[Words]:
    import anymps.device
    from anymps._errors import UsageError

    def unplanned(*_: object, **__: object) -> Any:
        raise UsageError("the script is not planned here")

    anymps.device.enable = unplanned
    Path("here.py").touch()
    text = data.replace(b"\0", b"")[:4000].decode("utf-8", "surrogateescape")
    return [
        ["coverage", "--", text],
        ["coverage", "add", "--torch", text],
        ["explain", "--", text],
        ["plan", "--mac", text, "here.py"],
        ["plan", "--what-if", text, "here.py"],
        ["plan", "--against", text, "here.py"],
        ["plan", "--torch", text, "here.py"],
        ["plan", "--seconds", text, "here.py"],
        ["bench", "--repeat", text, "missing.py"],
        ["verify", "--minutes", text, "--read", "missing.gz"],
        ["report", "--mac", text, "missing.anymps"],
        ["report", "--", text],
        ["kernels", "list", "--", text],
        ["convert", "--", text, "out.pt"],
        ["run", "--no-report", "--steps", text, "missing.py"],
    ]


_ZIP = (
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"data.pkl",
    b"byteorder",
    b".format_version",
    b"version",
)
_JSON = (
    *(bytes([sign]) for sign in b'{}[]",'),
    b"null",
    b"1e999",
    b"NaN",
    b"-0",
    b"\\ud800",
    b"\\u0000",
    b"\xe2\x80\xae",
    b"\x1b[2J",
    b"9" * 5000,
)

TARGETS: dict[str, Target] = {
    "recording": Target(recorded.seeds, recorded.place, (*[recorded.tables] * 3, recorded.journals)),
    "baseline": Target(_baselines, _baseline, (tree, numbers), _JSON),
    "settings": Target(
        _settings_files,
        _settings,
        (lines, numbers),
        (b"[tool.anymps]", b"'''", b'"""', b"[[", b"= {", b"\xe2\x80\xae", b"mac = "),
    ),
    "answers": Target(_answers, _verified, (packed,), ()),
    "wheel": Target(_wheels, _wheel, (archive((b"metal_basic", b"MTLB")),), (*_ZIP, b"torch/lib/libtorch_cpu.dylib")),
    "container": Target(
        _containers, _container, (), (b"MTLB", b"NAME", b"HASH", b"MDSZ", b"OFFT", b"VERS", b"ENDT", b"TYPE")
    ),
    "notebook": Target(_notebooks, _notebook, (tree, numbers), _JSON),
    "script": Target(
        _scripts,
        _script,
        (lines, numbers),
        (b"\t", b"(", b"'''", b"# -*- coding: utf-16 -*-\n", b"\xef\xbb\xbf", b"\x0c", b"\\\n"),
    ),
    "text": Target(
        _texts,
        _text,
        (numbers,),
        (b"aten::", b"[", b"*", b"!", b"macOS", b"\xe2\x80\xae", b"\x1b[31m", b"9" * 5000, b"=", b":", b"\xff"),
    ),
}

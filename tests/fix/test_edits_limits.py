"""A device is chosen anew only where the rest of the program takes it: choices are widened, other lists respected."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

import click
import pytest

from anymps.findings.edits import place_at, portable
from anymps.record import Site
from anymps.source import LineEdit, build, place_in_file

MPS = "torch.backends.mps.is_available()"


def new(text: str, line: int) -> str:
    """What becomes of a line of a file; empty if nothing."""
    text = f"import torch\n{text}\n"
    place = place_in_file(text, ast.parse(text), line + 1)
    built = None if place is None else build(LineEdit(portable), place)
    return "" if built is None else built.code


WIDENED = [
    ('p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])',
     f'p.add_argument("--device", default="mps" if {MPS} else "cuda", choices=["mps", "cuda", "cpu"])'),
    ("p.add_argument('--device', choices=('cpu', 'cuda'), default='cuda' if torch.cuda.is_available() else 'cpu')",
     f"p.add_argument('--device', choices=('cpu', 'mps', 'cuda'), default='mps' if {MPS} else "
     "'cuda' if torch.cuda.is_available() else 'cpu')"),
    ('p.add_argument("--device", choices=["cpu", "cuda", "mps"], default="cuda")',
     f'p.add_argument("--device", choices=["cpu", "cuda", "mps"], default="mps" if {MPS} else "cuda")'),
    ('o = click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda")',
     f'o = click.option("--device", type=click.Choice(["mps", "cuda", "cpu"]), default="mps" if {MPS} else "cuda")'),
    ('device: Literal["cuda", "cpu"] = "cuda"', f'device: Literal["mps", "cuda", "cpu"] = "mps" if {MPS} else "cuda"'),
    ('device: t.Optional[t.Literal["cuda"]] = field(default="cuda")',
     f'device: t.Optional[t.Literal["mps", "cuda"]] = field(default="mps" if {MPS} else "cuda")'),
    ('def f(x, *, device: Literal["cpu", "cuda"] = "cuda", n=1): pass',
     f'def f(x, *, device: Literal["cpu", "mps", "cuda"] = "mps" if {MPS} else "cuda", n=1): pass'),
    ('def f(x, device: str | torch.device | None = "cuda"): pass',
     f'def f(x, device: str | torch.device | None = "mps" if {MPS} else "cuda"): pass'),
    # What names the devices stands elsewhere.
    ('p.add_argument("--device", default="cuda", choices=DEVICES)', ""),
    ('p.add_argument("--device", default="cuda", choices=["cuda", *others])', ""),
    ('device: Device = "cuda"', ""),
    ('def f(x, device: Device = "cuda"): pass', ""),
    ('device: "Device" = "cuda"', ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), WIDENED)
def test_what_may_be_chosen(line: str, expected: str) -> None:
    """mps stands beside CUDA in the choices, or nothing is written."""
    assert new(line, 1) == expected


CHOSEN = 'p.add_argument("--device", default="cuda")'
LIMITS = [
    ('assert args.device in ("cuda", "cpu")', False),
    ('if args.device not in ["cuda", "cpu"]: raise ValueError(args.device)', False),
    ('x = {"cuda": 1, "cpu": 2}[args.device]', False),
    ('TABLE = {"cuda": 1, "cpu": 2}\nx = TABLE[config["device"]]', False),
    ('NAMES = ("cuda", "cpu")\nassert args.device in NAMES', False),
    ('if device == "cuda": x = 1\nelif device == "cpu": x = 2\nelse: raise ValueError(device)', False),
    ('match args.device:\n    case "cuda": x = 1\n    case "cpu": x = 2', False),
    ('assert args.device in ("cuda", "mps", "cpu")', True),
    ('assert args.model in ("cuda", "cpu")', True),
    ('x = {"cuda": 1, "cpu": 2}[args.model]', True),
    ('if device == "cuda": x = 1\nelif device == "cpu": x = 2\nelse: x = 3', True),
    ('if "cuda" in args.device: x = 1', True),
    ('match args.device:\n    case "cuda": x = 1\n    case "mps": x = 2', True),
]


@pytest.mark.parametrize(("limit", "edited"), LIMITS)
def test_what_the_program_takes(limit: str, edited: bool) -> None:
    """A default that the program itself would refuse is not written, by a file and by a recording's lines of it."""
    assert bool(new(f"{CHOSEN}\n{limit}", 1)) == edited
    lines = dict(enumerate(f"import torch\n{CHOSEN}\n{limit}".splitlines(), 1))
    place = place_at(Site("train.py", 2, "", CHOSEN, recorded=lines))
    assert place is not None
    known = (build(LineEdit(portable), place) is not None) == edited
    assert known or "\n" in limit  # a recording holds single lines


def test_new_options_take_mps(tmp_path: Path) -> None:
    """Parsers of argparse and click, made from the edited lines."""
    parser, options = argparse.ArgumentParser(), {"torch": __import__("torch"), "click": click}
    line = new('p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])', 1)
    exec(line, {**options, "p": parser})
    assert [parser.parse_args(["--device", device]).device for device in ("mps", "cuda", "cpu")] == [
        "mps",
        "cuda",
        "cpu",
    ]
    line = new('o = click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda")', 1)
    exec(line, options)
    command = click.command()(options["o"](lambda device: device))
    assert command.main(["--device", "mps"], standalone_mode=False) == "mps"


def test_a_chain_of_tests_ends_where_more_follows() -> None:
    """An `elif` is asked after the tests before it; an `if` in an `else` with more in it is of that branch alone."""
    text = "if a:\n    x = 1\nelif b:\n    x = 2\nelse:\n    if c:\n        x = 3\n    y = 4\n"
    place = place_in_file(text, ast.parse(text), 2)
    assert place is not None
    assert [ast.unparse(test) for test in place.tests] == ["a", "b"]

"""What a comparison says: whole text of each kind, the JSON by its schema, the page with its picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from anymps.compare import Comparison, compare_traces
from anymps.report import comparison_document, comparison_json, rendered
from compare_traces import Tracing, sketch

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "compare-1.json"
X = sketch([1.0, -2.0, 3.0])


def compared(make: Callable[[Tracing, bool], Tracing], error: str = "") -> Comparison:
    """The comparison of two traces that `make` makes; the second stops with `error`."""
    left, right = make(Tracing("cpu"), False), make(Tracing("mps"), True)
    return compare_traces("train.py", ("cpu", "mps"), left.end(), right.end(error, 12 if error else 0))


def parting(trace: Tracing, second: bool) -> Tracing:
    """Random numbers, then a wrong one; losses that part."""
    for step in range(4):
        noise = sketch([0.25 + second * 0.5, 0.5])
        trace.call("bernoulli_", 10, [], [noise], random=True)
        trace.call("erfc", 11, [X], [sketch([1.0 + second, 2.0])]).loss(4.0 - step + second * 0.1)
    return trace


def text_of(found: Comparison) -> str:
    """All of it as a terminal shows it."""
    return "".join(rendered(comparison_document(found), "terminal"))


PARTING = """\
The runs part in step 1 at train.py:10: another random stream.

Where they part first

  line      train.py:10  line 10
  operator  bernoulli_
  when      step 1, call 1
  cpu       float32 (2,), from 0.25 to 0.5, mean 0.375
  mps       float32 (2,), from 0.5 to 0.75, mean 0.625
  apart     0.5, 66.7 % of the largest number

  Why: `bernoulli_` draws other numbers on each device from the same seed: the Mersenne Twister on
  the CPU, Metal's Philox on mps.

  Do: To compare what else differs: `anymps compare --random cpu`. To train on the same numbers,
  draw them on the CPU and move them: `torch.rand(shape,
  generator=torch.Generator().manual_seed(0)).to(device)`. Dropout has no generator: compare with
  `p=0`, or in `eval()`.

What else differs

  What follows from an earlier parting is not listed.
  line         operator  why                                  step  times  apart
  train.py:11  erfc      another number from the same inputs     1      4   50 %

The losses  train.py:90
"""

AGREEING = """\
The runs agree: the same inputs gave the same bits in all of 1 results; the losses are the same.

The losses  train.py:90

  step  cpu  mps  apart
     1  1.5  1.5      0

What was compared

  cpu        torch 2.13.0, 1 call in 1 step
  mps        torch 2.13.0, M3 Pro 18GB, 1 call in 1 step
  calls      1 of both, of which 1 results had the same inputs
  same bits  1 of these 1 results

"""


def test_runs_that_part() -> None:
    """The first cause with its numbers, why and what to do; the other; then the losses."""
    text = text_of(compared(parting))
    assert text.startswith(PARTING)
    assert (
        "     1    4  4.1  2.4 %\n     2    3  3.1  3.2 %\n     3    2  2.1  4.8 %\n     4    1  1.1  9.1 %\n" in text
    )


def test_runs_that_agree() -> None:
    """A bound, and no curve of what is the same."""
    assert text_of(compared(lambda trace, _: trace.call("relu", 10, [X], [X]).loss(1.5))).startswith(AGREEING)


def test_a_run_that_stops() -> None:
    """The error and its line."""
    found = compared(lambda trace, _: trace.call("relu", 10, [X], [X]), "TypeError no float64")
    text = text_of(found)
    assert text.startswith("The script stops on mps, not on the CPU.\n")
    assert "  -  On mps at train.py:12  x.double(): TypeError no float64\n" in text


def test_known_faults_are_named() -> None:
    """A number that parts at an operator with a known fault of the release."""
    found = compared(lambda trace, second: trace.call("amax", 10, [X], [sketch([3.0 - 3 * second])]))
    assert "Known of `amax` in this release: MPS620, " in " ".join(text_of(found).split())


@pytest.mark.parametrize("make", [parting, lambda trace, _: trace.call("relu", 10, [X], [X])])
def test_json_keeps_to_its_schema(make: Callable[[Tracing, bool], Tracing]) -> None:
    """All fields, and no others."""
    found = compared(make)
    content = json.loads(comparison_json(found))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(content)
    assert content["agrees"] is found.agrees
    assert [it["cause"] for it in content["partings"]] == [it.cause.value for it in found.partings]


def test_losses_that_are_not_numbers() -> None:
    """NaN and infinity: as texts in JSON, as gaps in the picture, and infinitely far apart."""

    def make(trace: Tracing, second: bool) -> Tracing:
        for value in (1.0, 2.0, float("nan") if second else 3.0):
            trace.call("relu", 10, [X], [X]).loss(value)
        return trace

    found = compared(make)
    assert json.loads(comparison_json(found))["losses"]["values"][2] == [2, 3.0, "nan"]
    assert not found.agrees
    page = "".join(rendered(comparison_document(found), "html"))
    curves = [line.partition(' d="')[2].partition('"')[0] for line in page.splitlines() if 'class="loss loss-' in line]
    assert [curve.count("L") for curve in curves] == [2, 1, 2]


def test_a_page_has_the_picture_and_the_table() -> None:
    """Both curves, the distance, and their label."""
    page = "".join(rendered(comparison_document(compared(parting)), "html"))
    assert page.count('<path class="loss ') == 3
    assert "The loss on cpu and on mps, steps 1 to 4. At most 9.1 % apart." in page

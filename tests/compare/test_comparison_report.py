"""What a comparison says: whole text of each kind, the JSON by its schema, the page with its picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from anymps.compare import Comparison, compare_traces
from anymps.report import comparison_document, comparison_json, rendered
from compare_traces import Tracing, compared, sketch

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "compare-1.json"
X = sketch([1.0, -2.0, 3.0])


def divergence(trace: Tracing, second: bool) -> Tracing:
    """Random numbers, then a wrong one; losses that diverge."""
    for step in range(4):
        noise = sketch([0.25 + second * 0.5, 0.5])
        trace.call("bernoulli_", 10, [], [noise], random=True)
        trace.call("erfc", 11, [X], [sketch([1.0 + second, 2.0])]).loss(4.0 - step + second * 0.1)
    return trace


def text_of(found: Comparison) -> str:
    """All of it as a terminal shows it."""
    return "".join(rendered(comparison_document(found), "terminal"))


DIVERGING = """\
The runs diverge in step 1 at train.py:10: different random streams.

Where they first diverge

  line        train.py:10  line 10
  operator    bernoulli_
  when        step 1, call 1
  cpu         float32 (2,), from 0.25 to 0.5, mean 0.375
  mps         float32 (2,), from 0.5 to 0.75, mean 0.625
  difference  0.5, 66.7 % of the largest value

  Why: With the same seed, `bernoulli_` draws different numbers on each device: the Mersenne Twister
  on the CPU, Metal's Philox on mps.

  Do: To see what else differs, run `anymps compare --random cpu`. To train on the same numbers,
  draw them on the CPU and move them: `torch.rand(shape,
  generator=torch.Generator().manual_seed(0)).to(device)`. Dropout takes no generator: compare with
  `p=0` or in `eval()` mode.

What else differs

  Consequences of an earlier divergence are not listed.
  line         operator  why                                     step  times  difference
  train.py:11  erfc      different results from the same inputs     1      4        50 %

Losses  train.py:90
"""

AGREEING = """\
The runs agree: all results from the same inputs are bit-identical (1 compared); the losses are
identical.

Losses  train.py:90

  step  cpu  mps  difference
     1  1.5  1.5           0

What was compared

  cpu          torch 2.13.0, 1 call in 1 step
  mps          torch 2.13.0, M3 Pro 18GB, 1 call in 1 step
  calls        1 matched and compared
  same inputs  1 result, 1 bit-identical

"""


def test_runs_that_diverge() -> None:
    """The first cause with its numbers, why and what to do; the other; then the losses."""
    text = text_of(compared(divergence))
    assert text.startswith(DIVERGING)
    assert (
        "     1    4  4.1       2.4 %\n     2    3  3.1       3.2 %\n"
        "     3    2  2.1       4.8 %\n     4    1  1.1       9.1 %\n"
    ) in text


@pytest.mark.parametrize(
    ("operator", "more"),
    [
        ("multinomial", " A distribution takes no generator: give it parameters on the CPU, and move its samples."),
        ("rand", ""),
    ],
)
def test_random_numbers_on_the_cpu(operator: str, more: str) -> None:
    """How to draw them there depends on what draws them: not every sentence is about dropout."""
    found = compared(
        lambda trace, second: trace.call(operator, 10, [], [sketch([0.25 + second * 0.5])], random=True).loss(1.0)
    )
    (row,) = json.loads(comparison_json(found))["divergences"]
    assert row["advice"] == (
        "To see what else differs, run `anymps compare --random cpu`. To train on the same numbers, draw them on the "
        f"CPU and move them: `torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)`.{more}"
    )


def test_runs_that_agree() -> None:
    """A bound; a command shows the bound alone."""
    found = compared(lambda trace, _: trace.call("relu", 10, [X], [X]).loss(1.5))
    assert text_of(found).startswith(AGREEING)
    shown = "".join(rendered(comparison_document(found, short=True), "terminal"))
    assert shown == AGREEING.partition("\n\n")[0] + "\n"


def test_a_run_that_fails() -> None:
    """The error and its line."""
    found = compared(lambda trace, _: trace.call("relu", 10, [X], [X]), error="TypeError: no float64")
    text = text_of(found)
    assert text.startswith("The script fails on mps but not on the CPU.\n")
    assert "  -  On mps at train.py:12  x.double(): TypeError: no float64\n" in text


def test_a_number_of_the_program_that_differs() -> None:
    """It is shown as what differs, and where it may come from."""
    found = compared(
        lambda trace, second: trace.call("mul", 10, [X], [sketch([3.0 - second])], numbers=[0.5 - 0.25 * second])
    )
    text = " ".join(text_of(found).split())
    assert "The runs diverge at train.py:10: different data from outside torch." in text
    assert "cpu Python float, 0.5 mps Python float, 0.25 difference 0.25, 50 % of the largest value" in text
    assert (
        "Why: `mul` gets a different number in each run, and no tensor that the script reads before differs: the "
        "number comes from a clock, a file, `os.urandom` or another source that the seeds do not cover, or depends on "
        "the device. Do: Seed the source, or read it once and save the data to a file."
    ) in text


@pytest.mark.parametrize("make", [divergence, lambda trace, _: trace.call("relu", 10, [X], [X])])
def test_json_keeps_to_its_schema(make: Callable[[Tracing, bool], Tracing]) -> None:
    """All fields, and no others."""
    found = compared(make)
    content = json.loads(comparison_json(found))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(content)
    assert content["agrees"] is found.agrees
    assert [it["cause"] for it in content["divergences"]] == [it.cause.value for it in found.divergences]


def test_losses_that_are_not_numbers() -> None:
    """NaN and infinity: strings in JSON, and an infinite difference."""

    def make(trace: Tracing, second: bool) -> Tracing:
        for value in (1.0, 2.0, float("nan") if second else 3.0):
            trace.call("relu", 10, [X], [X]).loss(value)
        return trace

    found = compared(make)
    assert json.loads(comparison_json(found))["losses"]["values"][2] == [2, 3.0, "nan"]
    assert not found.agrees


def releases(make: Callable[[Tracing, bool], Tracing]) -> Comparison:
    """The comparison of two runs on mps, on the kernels of 2.13.0 and of 2.15.0."""
    left, right = make(Tracing("mps", "2.13.0"), False), make(Tracing("mps", "2.15.0"), True)
    return compare_traces("train.py", ("2.13's kernels", "2.15's kernels"), left.end(), right.end())


def wrong(*by: bool) -> str:
    """What is said of a call whose results differ, computed by each release's kernel or, where False, by the CPU."""
    found = releases(
        lambda trace, second: trace.call("cross", 10, [X], [sketch([3.0 - 3 * second])], by_kernel=by[second])
    )
    return " ".join(text_of(found).split())


def test_kernels_of_two_releases_that_differ() -> None:
    """Whose kernels they are, and how to see which is right."""
    text = wrong(True, True)
    assert (
        "Why: The inputs are the same, but the results differ by more than rounding explains: the kernels of torch "
        "2.13.0 and torch 2.15.0 compute different values. Do: To see which release is right, compare its numbers with "
        "the CPU's: `anymps run --kernels 2.13.0 --check-numbers` and `--kernels 2.15.0`. What was compared "
        "2.13's kernels torch 2.13.0, M3 Pro 18GB, 1 call, 1 of them by the Metal kernels of torch 2.13.0 "
        "2.15's kernels torch 2.13.0, M3 Pro 18GB, 1 call, 1 of them by the Metal kernels of torch 2.15.0 "
        "calls 1 matched and compared; 1 by the kernels of both releases, 0 by those of only one"
    ) in text


@pytest.mark.parametrize(
    ("by", "own", "other"), [((True, False), "2.13.0", "2.15.0"), ((False, True), "2.15.0", "2.13.0")]
)
def test_where_the_cpu_stands_for_a_release(by: tuple[bool, bool], own: str, other: str) -> None:
    """The launch of one is not known: it is said who computed what."""
    text = wrong(*by)
    assert (
        f"rounding explains: the kernel of torch {own} and this machine's CPU compute different values. It is not "
        f"known how torch {other} launches its kernel for this call, so the CPU computed it there."
    ) in text


OF_RELEASE = "Known bug of `amax` in torch 2.13.0: MPS620, amax and amin of 33 to 992 int64 numbers: a 0 too many."
INSTALLED = "Known bug of `amax` in this release: MPS620, "


@pytest.mark.parametrize(
    ("devices", "kernels", "by", "met", "facts", "said"),
    [
        (("cpu", "mps"), ("", ""), (False, False), (False, True), {}, INSTALLED),
        (("cpu", "mps"), ("", ""), (False, False), (False, False), {}, ""),  # another call of the operator
        (("cpu", "mps"), ("", ""), (False, False), (False, True), {"virtual": "1"}, ""),  # which computes what is right
        (("mps", "mps"), ("2.13.0", "2.15.0"), (True, True), (True, False), {}, OF_RELEASE),
        (("mps", "mps"), ("2.13.0", "2.15.0"), (True, False), (True, False), {}, OF_RELEASE),
        (("mps", "mps"), ("2.13.0", "2.15.0"), (False, True), (True, False), {}, ""),
        (("mps", "mps"), ("", "2.15.0"), (False, True), (False, False), {}, ""),  # where it is mended
        (("mps", "mps"), ("", "2.13.0"), (False, True), (False, True), {}, INSTALLED),
        (("mps", "mps"), ("2.15.0", ""), (True, False), (False, False), {}, ""),
        (("mps", "mps"), ("2.13.0", ""), (True, False), (True, False), {}, INSTALLED),
        (("mps", "mps"), ("", "2.13.0"), (False, False), (False, True), {}, ""),  # the CPU computed on both sides
        (("cpu", "mps"), ("", "2.13.0"), (False, True), (False, True), {"torch": "2.15.0"}, OF_RELEASE),
    ],
)
def test_a_known_bug_explains_what_its_own_kernel_computed(
    devices: tuple[str, str],
    kernels: tuple[str, str],
    by: tuple[bool, bool],
    met: tuple[bool, bool],
    facts: dict[str, str],
    said: str,
) -> None:
    """At a call that meets it, on whichever side; its release is named where that is not the installed one."""
    sides = []
    for number, (device, release) in enumerate(zip(devices, kernels, strict=True)):
        side = Tracing(device, release)
        side.trace.facts |= facts if number or "torch" in facts else {}
        faults = ["MPS620"] if met[number] else []
        side.call("amax", 10, [X], [sketch([3.0 - 3 * number])], by_kernel=by[number], faults=faults)
        sides.append(side.end())
    text = " ".join(text_of(compare_traces("train.py", ("one", "other"), *sides)).split())
    assert "different results from the same inputs" in text
    assert said in text
    assert ("MPS620" in text) is bool(said)


def test_kernels_of_two_releases_that_agree() -> None:
    """With the number of calls that both releases' kernels computed, and the first difference within rounding."""

    def make(trace: Tracing, second: bool) -> Tracing:
        trace.call("mm", 9, [X], [X])
        return trace.call("sum", 10, [X], [sketch([3.0, 4.0 + second * 2.0**-22])], by_kernel=True)

    text = " ".join(text_of(releases(make)).split())
    assert text.startswith(
        "The runs agree: no difference exceeds 0.054 % of the rounding bound. 1 of 2 calls ran on the kernels of both "
        "releases."
    )
    assert "first rounding train.py:10, sum, call 2: <0.001 % of the largest value" in text


def test_kernels_that_no_call_ran_on() -> None:
    """An agreement of the CPU with itself is none of the kernels."""
    found = releases(
        lambda trace, _: trace.call("mm", 9, [X], [X], by_kernel=trace.trace.facts["kernels_torch"] > "2.14")
    )
    assert "No call ran on both 2.13's kernels and 2.15's kernels, so this says nothing about them." in " ".join(
        text_of(found).split()
    )


def test_a_page_has_the_losses_as_a_table() -> None:
    """One row a step."""
    page = "".join(rendered(comparison_document(compared(divergence)), "html"))
    table = page.partition('<table id="losses-table">')[2].partition("</table>")[0]
    assert table.partition("<tbody>")[2].count("<tr>") == 4

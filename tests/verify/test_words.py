"""What is printed about answers, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from anymps import parse_mac
from anymps.cost import OperatorCall, predict_operator, predict_step
from anymps.verify import asked_lines, compare, comparison_lines, device_words, mac_of, played

from .answering import answers

RELU = "aten::relu(float32[4096, 4096]) -> (float32[4096, 4096])"
TIMES = "times: {} timed; median {} times the prediction, {} within its interval"


def machine(**more: Any) -> Any:
    """Answers of another machine."""
    found = answers()
    found.machine.update(more)
    return found


def test_a_machine() -> None:
    """Cores and memory where they are known."""
    assert device_words(machine()) == "Apple M3 Pro (18-core GPU), 18 GB, macOS 26.4, torch 2.13.0"
    assert device_words(machine(gpu_cores=0)) == "Apple M3 Pro, 18 GB, macOS 26.4, torch 2.13.0"
    assert device_words(machine(memory_gib=0)) == "Apple M3 Pro (18-core GPU), macOS 26.4, torch 2.13.0"


def test_the_mac_that_is_played() -> None:
    """By chip, cores, memory and the first two numbers of macOS; the chip's usual cores if those are not known."""
    for more in ({}, {"macos": "26.4.1"}, {"gpu_cores": 0}, {"gpu_cores": 99}):
        found = mac_of(machine(**more))
        assert found is not None
        assert played(found) == "Apple M3 Pro 18-core 18GB, macOS 26.4"
    assert mac_of(machine(chip="Apple M3 Max", gpu_cores=30, memory_gib=36)) == parse_mac(
        "M3 Max 30-core 36GB, macOS 26.4"
    )
    assert mac_of(machine(chip="Apple M99")) is None
    assert mac_of(machine(memory_gib=17)) is None


def test_what_was_asked() -> None:
    """A row a kind; seconds are whole, and a note stands behind them."""
    found = answers(waits={"a": {}, "b": {}}, faults={})
    found.kinds["waits"] = {"cases": 1234, "seconds": 12.6, "note": ""}
    found.kinds["faults"] = {"cases": 3, "seconds": 0, "note": "no \x1b time"}
    assert list(asked_lines(found)) == [
        "               cases  answers  seconds",
        "waits          1,234        2       13",
        "faults             3        0        0  no \\x1b time",
    ]


def printed(mac: Any, ours: Any) -> list[str]:
    return list(comparison_lines(mac, compare(mac, ours), everything=False))


def test_long_words_are_cut() -> None:
    """At 300 characters, in lines of 100; an answer of no words says so."""
    mac = answers(surface={"x": {"does": "computes", "value": "a" * 300}, "y": {"does": "computes", "value": ""}})
    ours = answers(surface={"x": {"does": "computes", "value": "b" * 301}, "y": {"does": "computes", "value": "1"}})
    lines = printed(mac, ours)
    start = lines.index("surface: x: value")
    assert lines[start + 1 : start + 9] == [
        "  the Mac  " + "a" * 89,
        *[" " * 11 + "a" * 89] * 2,
        " " * 11 + "a" * 33,
        "  anymps   " + "b" * 89,
        *[" " * 11 + "b" * 89] * 2,
        " " * 11 + "b" * 33 + " ...",
    ]
    assert lines[start + 9 :] == ["", "surface: y: value", "  the Mac  nothing", "  anymps   1"]
    assert "2 differences:" in lines


def test_differences_of_several_dtypes_stand_together() -> None:
    """Those of one operator, with one answer of the Mac, whatever the sample; values whatever they are."""
    refused = {"does": "refuses", "error": "E", "text": "no"}
    fine = {"does": "computes", "results": []}
    names = ("forward x float16", "forward x float32", "forward x", "forward y float32", "forward x float99")
    mac = answers(operators={name: {"samples": [fine, refused]} for name in names})
    mac.answers["operators"]["forward x int8"] = {"samples": [{**refused, "text": "never"}, fine]}
    ours = answers(operators={name: {"samples": [fine, fine]} for name in (*names, "forward x int8")})
    assert [line for line in printed(mac, ours) if line.startswith("operators: ")] == [
        "operators: forward x (float16, float32): outcome",
        "operators: forward y (float32): outcome",
        "operators: forward x float99: outcome",
        "operators: forward x (int8): outcome",
    ]


def test_samples_of_other_inputs_are_counted() -> None:
    """Of all kinds together."""
    mac = answers(
        operators={"c": {"samples": [{"does": "computes", "results": [], "inputs": text} for text in "ab"]}},
        pairs={"c": {"samples": [{"does": "computes", "results": [], "inputs": "a"}]}},
    )
    ours = answers(
        operators={"c": {"samples": [{"does": "computes", "results": [], "inputs": text} for text in "xy"]}},
        pairs={"c": {"samples": [{"does": "computes", "results": [], "inputs": "z"}]}},
    )
    assert "Inputs differ in 3 samples: only the form of the results was compared." in printed(mac, ours)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((1.0,), ("1 call", "1.00", 1)),
        ((2.0, 2.0, 1.0), ("3 calls", "2.00", 1)),
        ((0.25, 0.5), ("2 calls", "0.38", 0)),
    ],
)
def test_times_beside_the_predicted_ones(factors: tuple[float, ...], words: tuple[str, str, int]) -> None:
    """The median of their ratios, and how many lie within the interval of the prediction."""
    mac = parse_mac("M3 Pro 18-core 18GB, macOS 26.4")
    sizes = [4096 + 64 * at for at in range(len(factors))]
    calls = [f"aten::relu(float32[{n}, {n}]) -> (float32[{n}, {n}])" for n in sizes]
    times = {
        f"{call} pipe": {
            "seconds": factor * predict_step([OperatorCall.parse(call)], mac, "2.13.0").seconds,
            "mode": "pipe",
        }
        for call, factor in zip(calls, factors, strict=True)
    }
    predicted = predict_operator(OperatorCall.parse(calls[0]), mac, "2.13.0")
    assert predicted.device / 2 < predicted.low <= predicted.device <= predicted.high < 2 * predicted.device
    found = answers(times=times)
    assert TIMES.format(*words) in printed(found, found)


def test_the_edges_of_an_interval_lie_in_it() -> None:
    """Both; a little further does not."""
    mac = parse_mac("M3 Pro 18-core 18GB, macOS 26.4")
    call = OperatorCall.parse(RELU)
    predicted = predict_operator(call, mac, "2.13.0")
    seconds = predict_step([call], mac, "2.13.0").seconds
    for edge, outside in ((predicted.low, 0.999), (predicted.high, 1.001)):
        for factor, inside in ((1 + (1 - outside) / 1e6, 1), (outside, 0)):
            ratio = edge / predicted.device * factor
            found = answers(times={f"{RELU} pipe": {"seconds": seconds * ratio, "mode": "pipe"}})
            assert TIMES.format("1 call", f"{ratio:.2f}", inside) in printed(found, found)


def test_times_that_say_nothing_are_left_out() -> None:
    """Without seconds, of an unknown mode or call, and of a Mac that is not known."""
    one = {f"{RELU} pipe": {"seconds": 1.0}}
    strange = {"x": {"seconds": 1.0}, f"{RELU} warp": {"seconds": 1.0}, f"{RELU} sync": {"does": "refuses"}}
    for times in (strange, {f"{RELU} pipe": {"seconds": 0}}, {f"{RELU} pipe": {"seconds": "1"}}, {"f(x pipe": one}):
        assert not any(line.startswith("times:") for line in printed(answers(times=times), answers()))
    lost = answers(times=one)
    lost.machine["chip"] = "Apple M99"
    assert not any(line.startswith("times:") for line in printed(lost, answers()))
    mixed = answers(times={**strange, **one})
    assert any(line.startswith("times: 1 call timed") for line in printed(mixed, answers()))

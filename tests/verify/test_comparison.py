"""Where two files of answers part: each kind of difference is found, told, and counted once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymps import parse_mac
from anymps.cost import OperatorCall, predict_step
from anymps.verify import Answers, compare, comparison_lines

from .answering import answers, computed, result


def parted(kind: str, mac: dict[str, Any], ours: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What is another in one case, on the Mac and here; in a comparison with itself nothing is."""
    for one in (mac, ours):
        assert compare(answers(**{kind: {"c": one}}), answers(**{kind: {"c": one}})).differences == []
    comparison = compare(answers(**{kind: {"c": mac}}), answers(**{kind: {"c": ours}}))
    count = comparison.counts[kind]
    assert (count.both, count.agree) == (1, int(not comparison.differences))
    return [(one.what, one.mac, one.ours) for one in comparison.differences]


RELU = "aten::relu(float32[4096, 4096]) -> (float32[4096, 4096])"
REFUSED = {"does": "refuses", "error": "RuntimeError", "text": "no"}


@pytest.mark.parametrize(
    ("mac", "ours", "expected"),
    [
        (REFUSED, computed(result(1.0)), [("outcome", "refuses: RuntimeError: no", "computes")]),
        (REFUSED, {**REFUSED, "text": "no."}, [("error message", "no", "no.")]),
        (REFUSED, {**REFUSED, "error": "TypeError"}, [("error class", "RuntimeError", "TypeError")]),
        ({"does": "crashes", "text": "exit status -6: failed assertion"}, computed(result(1.0)),
         [("outcome", "crashes: exit status -6: failed assertion", "computes")]),
        ({"does": "hangs", "text": "no response for 90 s"}, {**REFUSED, "text": "anymps: this never returns"}, []),
        ({"does": "crashes", "text": "exit"}, REFUSED, [("outcome", "crashes: exit", "refuses: RuntimeError: no")]),
        (computed(result(1.0), warns=["The operator 'aten::x' runs on the CPU"]), computed(result(1.0)),
         [("warnings", "The operator 'aten::x' runs on the CPU", "none")]),
        (computed(result(1.0)), computed(result(1.0), result(2.0)), [("number of results", "1", "2")]),
        (computed(result(1.0)), computed(result(1.0, dtype=torch.float16)), [("dtype", "float32", "float16")]),
        (computed({**result(1.0), "strides": [3]}), computed(result(1.0)), [("strides", "3", "1")]),
        (computed({**result(1.0), "shape": [1, 1], "strides": [1, 1]}), computed(result(1.0)),
         [("shape", "1, 1", "1"), ("strides", "1, 1", "1")]),
        (computed({**result(1.0), "device": "cpu"}), computed(result(1.0)), [("device", "cpu", "none")]),
        (computed(result(1.0, 2.5)), computed(result(1.0, 2.0)),
         [("values", "2.5 at 1; 1 of 2 kept values differ", "2.0")]),
        (computed(result(1.0, float("nan"))), computed(result(1.0, 2.0)),
         [("values", "nan at 1; 1 of 2 kept values differ", "2.0")]),
        (computed(result(1.0, 2.00001)), computed(result(1.0, 2.0)), []),
        (computed(result(3, 4, dtype=torch.int64)), computed(result(3, 5, dtype=torch.int64)),
         [("values", "4 at 1; 1 of 2 kept values differ", "5")]),
        (computed({**result(3, dtype=torch.int64), "digest": "x"}), computed(result(3, dtype=torch.int64)),
         [("values", "differ, but not those that were kept", "")]),
        (computed({"python": "bool", "value": "True"}), computed({"python": "bool", "value": "False"}),
         [("result", "True", "False")]),
        (computed({"python": "float", "value": "0.33333334"}),
         computed({"python": "float", "value": "0.33333331"}), []),
        (computed({"python": "float", "value": "0.33"}), computed({"python": "int", "value": "0"}),
         [("result type", "float", "int")]),
        (computed(result(1.0)), computed({"dtype": "float32", "shape": [1], "strides": [1]}), []),
        ({"does": "unasked", "text": "no"}, {"does": "unasked", "text": "nothing"}, None),
    ],
)  # fmt: skip
def test_answers_of_one_call(mac: dict[str, Any], ours: dict[str, Any], expected: Any) -> None:
    """Outcome, texts word for word, warnings, form, and values beyond rounding."""
    if expected is None:
        comparison = compare(answers(operators={"c": mac}), answers(operators={"c": ours}))
        assert (comparison.counts["operators"].missing, comparison.differences) == (1, [])
        return
    assert parted("operators", mac, ours) == expected
    in_samples = parted("operators", {"samples": [mac]}, {"samples": [ours]})
    assert in_samples == [(f"{what}, sample 1", left, right) for what, left, right in expected]


@pytest.mark.parametrize(
    ("kind", "mac", "ours", "expected"),
    [
        ("waits", {"waits": True}, {"waits": False}, [("waits for the device", "True", "False")]),
        ("surface", {"names": ["a", "b"]}, {"names": ["b", "c"]}, [("names", "a", "c")]),
        ("surface", {"does": "computes", "value": "1"}, {"does": "computes", "value": "2"}, [("value", "1", "2")]),
        ("memory", {"does": "computes", "rows": [["+", 256, 9], ["-", 0, 9]]},
         {"does": "computes", "rows": [["+", 256, 8], ["-", 0, 8]]},
         [("bytes in tensors and in the driver", "+, 256, 9", "+, 256, 8")]),
        ("memory", {"does": "computes", "rows": [["+", 256, 9]]}, {"does": "computes", "rows": []},
         [("number of rows", "1", "0")]),
        ("streams", {"samples": [computed(result(5, dtype=torch.uint8))]},
         {"samples": [computed(result(6, dtype=torch.uint8))]},
         [("values, sample 1", "5 at 0; 1 of 1 kept values differ", "6")]),
        ("faults", {"shows": True, "text": "t"}, {"shows": False, "sure": False},
         [("known fault", "shows it: t", "does not report it")]),
        ("faults", {"shows": False}, {"shows": True, "sure": True},
         [("known fault", "does not show it", "reports it")]),
        ("faults", {"shows": True, "text": "a"}, {"shows": True, "sure": True, "text": "b"},
         [("error message", "a", "b")]),
        ("faults", {"shows": True, "does": "crashes", "text": "exit"},
         {"shows": True, "sure": True, "text": "anymps: b"}, []),
        ("faults", {"shows": False}, {"shows": True, "sure": False}, []),
    ],
)  # fmt: skip
def test_other_kinds(
    kind: str, mac: dict[str, Any], ours: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    """Waits, names, counters, streams and faults; one that shows at times only may be absent."""
    assert parted(kind, mac, ours) == expected


def test_other_inputs_are_another_question() -> None:
    """Only the form of the result is compared then, and that is said."""
    mac = answers(operators={"c": computed(result(1.0), inputs="a")})
    ours = answers(operators={"c": computed(result(9.0), inputs="b")})
    comparison = compare(mac, ours)
    assert comparison.differences == []
    lines = list(comparison_lines(mac, comparison, everything=False))
    assert "Inputs differ in 1 sample: only the form of the results was compared." in lines


def printed(mac: Answers, ours: Answers, everything: bool = False) -> str:
    """The comparison as it is printed."""
    return "\n".join(comparison_lines(mac, compare(mac, ours), everything=everything))


def test_the_words() -> None:
    """Counts, then differences: those of one operator and cause together, with both answers."""
    played = parse_mac("M3 Pro 18-core 18GB, macOS 26.4")
    predicted = predict_step([OperatorCall.parse(RELU)], played, "2.13.0").seconds
    refused = {"samples": [{"does": "refuses", "error": "TypeError", "text": "not\nhere \x1b[2J"}], "operator": "x"}
    fine = {"samples": [computed(result(1.0))], "operator": "x"}
    near = {"samples": [computed(result(1.0000001))], "operator": "y"}
    mac = answers(
        waits={"item": {"waits": True}, "gone": {"waits": True}},
        operators={"forward x float16": refused, "forward x float32": refused, "forward y float32": near},
        times={f"{RELU} pipe": {"seconds": predicted, "mode": "pipe"}},
    )
    ours = answers(
        waits={"item": {"waits": True}},
        operators={"forward x float16": fine, "forward x float32": fine, "forward y float32": fine},
    )
    assert printed(mac, ours) == (
        "              compared   agree  bit for bit  differ  not asked\n"
        "waits                1       1            1       0          1\n"
        "operators            3       1            0       2          0\n"
        "times: 1 call timed; median 1.00 times the prediction, 1 within its interval\n"
        "2 differences:\n"
        "\n"
        "operators: forward x (float16, float32): outcome\n"
        "  the Mac  refuses: TypeError: not here \\x1b[2J\n"
        "  anymps   computes"
    )
    assert printed(mac, mac).endswith("They agree everywhere.")


def test_many_differences() -> None:
    """The first thirty groups of a kind, unless all are asked for."""
    mac = answers(waits={f"w{at}": {"waits": True} for at in range(40)})
    ours = answers(waits={f"w{at}": {"waits": False} for at in range(40)})
    assert printed(mac, ours).endswith("waits: 10 more (--verbose shows all)")
    assert printed(mac, ours, everything=True).count("the Mac") == 40

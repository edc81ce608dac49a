"""Where two files of answers part: each kind of difference is found, told, and counted once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymps.verify import Answers, asked_lines, compare, comparison_lines, device_words, mac_of

from .answering import answers, computed, result


def parted(kind: str, mac: dict[str, Any], ours: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What is another in one case, on the Mac and here; in a comparison with itself nothing is."""
    for one in (mac, ours):
        assert compare(answers(**{kind: {"c": one}}), answers(**{kind: {"c": one}})).differences == []
    comparison = compare(answers(**{kind: {"c": mac}}), answers(**{kind: {"c": ours}}))
    count = comparison.counts[kind]
    assert (count.both, count.agree) == (1, int(not comparison.differences))
    return [(one.what, one.mac, one.ours) for one in comparison.differences]


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
        ("waits", {"does": "computes", "value": "waits"}, {"does": "computes", "value": "does not wait"},
         [("value", "waits", "does not wait")]),
        ("memory", {"samples": [{"does": "computes", "value": "+: 256"}, REFUSED]},
         {"samples": [{"does": "computes", "value": "+: 512"}, REFUSED]}, [("value, sample 1", "+: 256", "+: 512")]),
        ("memory", {"samples": [REFUSED]}, {"samples": []}, [("number of samples", "1", "0")]),
        ("streams", {"samples": [computed(result(5, dtype=torch.uint8))]},
         {"samples": [computed(result(6, dtype=torch.uint8))]},
         [("values, sample 1", "5 at 0; 1 of 1 kept values differ", "6")]),
    ],
)  # fmt: skip
def test_other_kinds(
    kind: str, mac: dict[str, Any], ours: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    """Waits, counters and random numbers."""
    assert parted(kind, mac, ours) == expected


OWN = {"does": "refuses", "error": "RuntimeError", "text": "anymps: this ends the process"}
CRASH = {"does": "crashes", "text": "exit"}
ABSENT = [("known bug", "does not show it", "reports it")]


@pytest.mark.parametrize(
    ("mac", "ours", "reports", "expected"),
    [
        (computed(result(2.5)), computed(result(2.0)), "no",
         [("values", "2.5 at 0; 1 of 1 kept values differ", "2.0")]),
        (computed(result(2.5)), computed(result(2.0)), "sure", []),
        (computed(result(2.0)), computed(result(2.0)), "sure", ABSENT),
        (computed(result(2.0)), computed(result(2.0)), "may", []),
        (computed(result(2.5)), computed(result(2.0)), "may", []),
        (CRASH, OWN, "sure", []),
        (CRASH, OWN, "no", []),
        (computed(result(2.0)), OWN, "sure", ABSENT),
        (REFUSED, computed(result(2.0)), "sure", []),
        (REFUSED, REFUSED, "sure", []),
        (REFUSED, {**REFUSED, "text": "no."}, "sure", [("error message", "no", "no.")]),
        (computed(result(2.0)), REFUSED, "sure", [("outcome", "computes", "refuses: RuntimeError: no")]),
        (computed(result(2.0)), REFUSED, "may", []),
    ],
)  # fmt: skip
def test_known_faults(mac: dict[str, Any], ours: dict[str, Any], reports: str, expected: Any) -> None:
    """One that is reported shows in another answer than the right one; what shows at times only may be absent."""
    ours = {**ours, "reports": reports}
    found = compare(answers(faults={"c": mac}), answers(True, faults={"c": ours})).differences
    assert [(one.what, one.mac, one.ours) for one in found] == expected
    itself = compare(answers(True, faults={"c": ours}), answers(True, faults={"c": ours}))
    assert itself.differences == []


def test_a_fault_that_another_virtual_device_reports() -> None:
    """Their answers are the same: the difference is what they report."""
    mac, ours = ({**computed(result(2.0)), "reports": word} for word in ("sure", "no"))
    (found,) = compare(answers(True, faults={"c": mac}), answers(True, faults={"c": ours})).differences
    assert (found.what, found.mac, found.ours) == ("known bug", "reports: sure", "reports: no")


def test_other_inputs_are_another_question() -> None:
    """Only the form of the result is compared then, and that is said."""
    mac = answers(operators={"c": computed(result(1.0), inputs="a")})
    ours = answers(operators={"c": computed(result(9.0), inputs="b")})
    comparison = compare(mac, ours)
    assert comparison.differences == []
    lines = list(comparison_lines(comparison, everything=False))
    assert "Inputs differ in 1 sample: only the form of the results was compared." in lines


def printed(mac: Answers, ours: Answers, everything: bool = False) -> str:
    """The comparison as it is printed."""
    return "\n".join(comparison_lines(compare(mac, ours), everything=everything))


WAITS, WAITS_NOT = {"does": "computes", "value": "waits"}, {"does": "computes", "value": "does not wait"}


def test_the_words() -> None:
    """Counts, then differences: those of one operator and cause together, counted as they are listed."""
    refused = {"samples": [{"does": "refuses", "error": "TypeError", "text": "not\nhere \x1b[2J"}], "operator": "x"}
    fine = {"samples": [computed(result(1.0))], "operator": "x"}
    near = {"samples": [computed(result(1.0000001))], "operator": "y"}
    mac = answers(
        waits={"item": WAITS, "gone": WAITS},
        operators={"forward x float16": refused, "forward x float32": refused, "forward y float32": near},
    )
    ours = answers(
        waits={"item": WAITS},
        operators={"forward x float16": fine, "forward x float32": fine, "forward y float32": fine},
    )
    assert printed(mac, ours) == (
        "              compared   agree  bit for bit  differ  not asked\n"
        "waits                1       1            1       0          1\n"
        "operators            3       1            0       2          0\n"
        "1 difference:\n"
        "\n"
        "operators: forward x (float16, float32): outcome, 2 times\n"
        "  the Mac  refuses: TypeError: not here \\x1b[2J\n"
        "  anymps   computes"
    )
    assert printed(mac, mac).endswith("They agree everywhere.")


def test_counters_that_follow_from_one_another_are_one_difference() -> None:
    """The first of a script is shown."""
    mac, ours = (
        answers(memory={"four sizes": {"samples": [{"does": "computes", "value": f"{at}: {size}"} for at in range(3)]}})
        for size in (256, 512)
    )
    assert printed(mac, ours).splitlines()[2:] == [
        "1 difference:",
        "",
        "memory: four sizes: value, 3 times",
        "  the Mac  0: 256",
        "  anymps   0: 512",
    ]


def test_many_differences() -> None:
    """The first thirty groups of a kind, unless all are asked for."""
    mac = answers(waits={f"w{at}": WAITS for at in range(40)})
    ours = answers(waits={f"w{at}": WAITS_NOT for at in range(40)})
    assert printed(mac, ours).endswith("waits: 10 more (--verbose shows all)")
    assert printed(mac, ours, everything=True).count("the Mac") == 40


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
    assert mac_of(machine(macos="26.4.1")) == "M3 Pro 18-core 18GB, macOS 26.4"
    for cores in (0, 99):
        assert mac_of(machine(gpu_cores=cores)) == "M3 Pro 18GB, macOS 26.4"
    assert mac_of(machine(chip="Apple M99")) is None
    assert mac_of(machine(memory_gib=17)) is None


def test_what_was_asked() -> None:
    """A row a kind; a note stands behind it."""
    found = answers(waits={"a": {}, "b": {}}, faults={})
    found.kinds["waits"] = {"cases": 1234, "note": ""}
    found.kinds["faults"] = {"cases": 3, "note": "no \x1b time"}
    assert list(asked_lines(found)) == [
        "               cases  answers",
        "waits          1,234        2",
        "faults             3        0  no \\x1b time",
    ]


def test_long_words_are_cut() -> None:
    """At 300 characters, in lines of 100; an answer of no words says so."""
    mac = answers(waits={"x": {"does": "computes", "value": "a" * 300}, "y": {"does": "computes", "value": ""}})
    ours = answers(waits={"x": {"does": "computes", "value": "b" * 301}, "y": {"does": "computes", "value": "1"}})
    lines = printed(mac, ours).splitlines()
    start = lines.index("waits: x: value")
    assert lines[start + 1 : start + 9] == [
        "  the Mac  " + "a" * 89,
        *[" " * 11 + "a" * 89] * 2,
        " " * 11 + "a" * 33,
        "  anymps   " + "b" * 89,
        *[" " * 11 + "b" * 89] * 2,
        " " * 11 + "b" * 33 + " ...",
    ]
    assert lines[start + 9 :] == ["", "waits: y: value", "  the Mac  nothing", "  anymps   1"]
    assert "2 differences:" in lines


def test_differences_of_several_dtypes_stand_together() -> None:
    """Those of one operator, with one answer of the Mac, whatever the sample; values whatever they are."""
    refused = {"does": "refuses", "error": "E", "text": "no"}
    fine = {"does": "computes", "results": []}
    names = ("forward x float16", "forward x float32", "forward x", "forward y float32", "forward x float99")
    mac = answers(operators={name: {"samples": [fine, refused]} for name in names})
    mac.answers["operators"]["forward x int8"] = {"samples": [{**refused, "text": "never"}, fine]}
    ours = answers(operators={name: {"samples": [fine, fine]} for name in (*names, "forward x int8")})
    assert [line for line in printed(mac, ours).splitlines() if line.startswith("operators: ")] == [
        "operators: forward x (float16, float32): outcome, 3 times",
        "operators: forward y (float32): outcome",
        "operators: forward x float99: outcome",
        "operators: forward x (int8): outcome",
    ]


def test_samples_of_other_inputs_are_counted() -> None:
    """Of all kinds together."""
    mac = answers(
        operators={"c": {"samples": [{"does": "computes", "results": [], "inputs": text} for text in "ab"]}},
        fallbacks={"c": {"samples": [{"does": "computes", "results": [], "inputs": "a"}]}},
    )
    ours = answers(
        operators={"c": {"samples": [{"does": "computes", "results": [], "inputs": text} for text in "xy"]}},
        fallbacks={"c": {"samples": [{"does": "computes", "results": [], "inputs": "z"}]}},
    )
    assert "Inputs differ in 3 samples: only the form of the results was compared." in printed(mac, ours)

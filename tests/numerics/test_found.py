"""What a check says of a call: the wrong result as data and in a sentence, why a call is left out, and the counts."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from anymps.numerics import NumberCheck
from anymps.numerics import _check as module
from anymps.numerics._check import Found
from anymps.numerics._session import told


def run(check: NumberCheck, name: str, arguments: tuple[Any, ...], results: tuple[Any, ...], **more: Any) -> str | None:
    """One call through a check: what `end` says."""
    operator, _, overload = name.partition(".")
    kept: Any = check.begin(f"aten::{operator}", overload, arguments)
    assert kept is not None
    return check.end(kept, results, more.get("site", 0), more.get("backward", False))


def fresh(**more: Any) -> NumberCheck:
    return NumberCheck(lambda name: False, **more)


def test_a_wrong_result_as_data() -> None:
    """Each field, on the tape and for who listens."""
    heard: list[tuple[Found, int]] = []
    check = NumberCheck(lambda name: name == "exp", lambda found, site: heard.append((found, site)))
    x = torch.tensor([[0.0, 1.0], [2.0, 0.5]]).t()
    wrong = x.exp()
    wrong[1, 0] = 3.0
    text = run(check, "exp", (x,), (wrong,), site=7, backward=True)
    expected = Found(
        kind="number",
        operator="aten::exp",
        dtype="float32",
        shapes=[[2, 2]],
        layout="strides [1, 2]",
        expected="2.71828183",
        backward=True,
        order=1,
        result=0,
        index=[1, 0],
        found="3",
        allowed="2.8e-06",
        bound="8.5 ulp of float32",
        source="Metal Shading Language Specification 4.1, table 8.1",
        wrong=1,
        count=4,
        mpsgraph=True,
    )
    assert check.found == [expected]
    assert heard == [(expected, 7)]
    assert text == f"anymps::numbers {json.dumps(asdict(expected), sort_keys=True)}"
    assert expected.share == 0.25
    assert (check.compared, check.wrong) == ({"aten::exp": 1}, {"aten::exp": 1})


def test_the_order_and_the_counts() -> None:
    """Wrong results count through the run; right ones say nothing; the facts have all."""
    check = fresh()
    x = torch.tensor([1.0, 4.0])
    assert run(check, "sqrt", (x,), (x.sqrt(),)) is None
    for order in (1, 2, 3):
        run(check, "sqrt" if order == 2 else "neg", (x,), (x + 9,))
        assert check.found[-1].order == order
    check.begin("aten::rand", "", ())
    assert check.facts() == {"compared": 4, "operators": 2, "wrong": 3, "left_out": {"random numbers": 1}}


def test_no_more_than_the_limit_is_kept() -> None:
    """The others are counted, and who listens hears of them."""
    heard: list[int] = []
    check = NumberCheck(lambda name: False, lambda found, site: heard.append(found.order), limit=2)
    x = torch.ones(2)
    texts = [run(check, "neg", (x,), (x,)) for _ in range(4)]
    assert [text is not None for text in texts] == [True, True, False, False]
    assert [found.order for found in check.found] == [1, 2]
    assert heard == [1, 2, 3, 4]
    assert check.wrong == {"aten::neg": 4}


def test_numbers_are_told_to_nine_digits() -> None:
    """Floats; integers and truth values as they are; no more than eight sizes."""
    check = fresh()
    run(check, "add.Tensor", (torch.tensor([2**40]), torch.tensor([1]), 1), (torch.tensor([5]),))
    found = check.found[-1]
    assert (found.expected, found.found, found.bound, found.source) == (str(2**40 + 1), "5", "exact", "")
    run(check, "gt.Scalar", (torch.tensor(1.0), 0), (torch.tensor(False),))
    found = check.found[-1]
    assert (found.expected, found.found, found.index, found.layout) == ("True", "False", [], "contiguous")
    many = [torch.ones(1) for _ in range(10)]
    run(check, "cat", (many, 0), (torch.zeros(10),))
    assert check.found[-1].shapes == [[1]] * 8
    assert check.found[-1].allowed == "0"


def test_a_call_that_the_cpu_refuses_for_an_index() -> None:
    """The first line of its words, at most 300 characters, with the sizes of the call."""
    check = fresh()
    weight, index = torch.ones(3, 2), torch.tensor([0, 5])
    text = run(check, "index_select", (weight, 0, index), (torch.ones(2, 2),), backward=True)
    (found,) = check.found
    assert found == Found(
        kind="refused",
        operator="aten::index_select",
        dtype="float32",
        shapes=[[3, 2], [2]],
        layout="contiguous",
        expected=found.expected,
        backward=True,
        order=1,
    )
    assert found.expected.startswith("index out of range")
    assert "\n" not in found.expected
    assert text is not None
    assert (check.compared, check.wrong) == ({"aten::index_select": 1}, {"aten::index_select": 1})
    assert told(found) == f"aten::index_select of float32 ran, but the CPU rejects it: {found.expected}"


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("index 5 is out of bounds for dimension 0", True),
        ("indices should be on the same device", True),
        ("index must be between 0 and 3", True),
        ("Expected idx >= 0 && idx < num_indices", True),
        ("value is out of bounds", True),
        ("the index has another dtype", False),
        ("not implemented for Half\nindex out of range", True),
        ("not implemented for Half", False),
        (f"{'x' * 130}\nmore", False),
    ],
)
def test_which_words_are_about_an_index(words: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other error of the CPU leaves the call out, with its first line, up to 120 characters of it."""

    class Refused:
        def __init__(self, *given: object) -> None:
            raise RuntimeError(words)

    monkeypatch.setattr(module, "Comparison", Refused)
    check = fresh()
    said = run(check, "neg", (torch.ones(2),), (torch.ones(2),))
    assert (said is not None) is refused
    reason = f"the CPU raises an error: aten::neg: {words[:120]}"
    assert check.left_out == ({} if refused else {reason: 1})


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("neg", (torch.eye(2).to_sparse(),), "sparse, quantised or nested tensors"),
        ("rand", ([2],), "random numbers"),
        ("native_dropout", (torch.ones(2), 0.5, True), "random numbers"),
        ("neg", (torch.empty(1).expand((1 << 27) + 1),), "more than 134 million elements"),
        ("mul.Tensor", (torch.empty(1).expand(1 << 26), torch.empty(1).expand((1 << 26) + 1)),
         "more than 134 million elements"),
        ("copy_", (torch.ones(2), torch.ones(2), True), "copies to the CPU with non_blocking=True"),
        ("_to_copy", (torch.ones(2), None, None, torch.device("cpu"), None, True),
         "copies to the CPU with non_blocking=True"),
        ("empty_like", (torch.ones(2),), None),
    ],
)  # fmt: skip
def test_why_a_call_is_left_out(name: str, arguments: tuple[Any, ...], reason: str | None) -> None:
    """Each reason is counted, but for memory that nobody wrote to."""
    check = fresh()
    operator, _, overload = name.partition(".")
    assert check.begin(f"aten::{operator}", overload, arguments) is None
    assert check.left_out == ({} if reason is None else {reason: 1})


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("neg", (torch.empty(1).expand(1 << 27),)),
        ("copy_", (torch.ones(2), torch.ones(2), False)),
        ("copy_", (torch.ones(2), torch.ones(2))),
        ("_to_copy", (torch.ones(2), None, None, torch.device("cpu"), None, False)),
        ("_to_copy", (torch.ones(2), None, None, torch.device("meta"), None, True)),
        ("native_dropout", (torch.ones(2), 0.0, True)),
    ],
)
def test_what_is_not_left_out(name: str, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest call that is compared, and copies that wait."""
    monkeypatch.setattr(module, "copied_to_cpu", lambda arguments: arguments)
    check = fresh()
    begun = check.begin(f"aten::{name}", "", arguments)
    assert (begun is not None) is (name != "native_dropout")  # which is random by its name


FOUND = Found(
    "number", "aten::exp", "float32", [[2, 2]], "contiguous", "2", False, 1, index=[1, 0], found="3",
    bound="4.5 ulp of float32", wrong=1234, count=5678,
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "times", "words"),
    [
        (FOUND, 1, "aten::exp of float32 got 1,234 of 5,678 elements wrong; worst at [1, 0]: 3, but the CPU computes 2 "
         "(allowed: 4.5 ulp of float32)"),
        (FOUND, 3, "aten::exp of float32 got 1,234 of 5,678 elements wrong, 3 times; worst at [1, 0]: 3, but the CPU "
         "computes 2 (allowed: 4.5 ulp of float32)"),
        (replace(FOUND, wrong=1, count=1, index=[], bound="exact"), 1,
         "aten::exp of float32 got its only element wrong: 3, but the CPU computes 2 (must be exact)"),
        (replace(FOUND, wrong=1, count=2), 1, "aten::exp of float32 got 1 of 2 elements wrong; worst at [1, 0]: 3, but "
         "the CPU computes 2 (allowed: 4.5 ulp of float32)"),
    ],
)  # fmt: skip
def test_a_wrong_result_in_a_sentence(found: Found, times: int, words: str) -> None:
    """How many elements, how often, the worst, and what is allowed."""
    assert told(found, times) == words

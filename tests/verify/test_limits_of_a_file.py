"""How much a file of answers may hold: the largest that is read, and one more, which is refused with its place."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from anymps import UsageError
from anymps.verify import read_answers
from anymps.verify._form import ITEM_SIZES, fault_of

from .answering import MACHINE


def fault(answer: Any, **more: Any) -> str:
    """What is wrong with a document of this one answer."""
    whole = {"virtual": True, "made": "", "machine": MACHINE, "kinds": {}, "answers": {"waits": {"c": answer}}}
    return fault_of({**whole, **more})


def tensor(**more: Any) -> dict[str, Any]:
    """An answer with one result."""
    return {"results": [{"dtype": "int8", "shape": [], **more}]}


HERE = "answers.waits.c"


@pytest.mark.parametrize(
    ("make", "most", "problem"),
    [
        (lambda n: {"text": "x" * n}, 20_000, f"{HERE}.text is not a string, or is too long"),
        (lambda n: {"samples": [{}] * n}, 1000, f"{HERE}.samples is not an array, or is too long"),
        (lambda n: {"results": [{"python": "int", "value": "1"}] * n}, 1000,
         f"{HERE}.results is not an array, or is too long"),
        (lambda n: {"shapes": [[]] * n}, 1000, f"{HERE}.shapes is not an array, or is too long"),
        (lambda n: {"names": ["x"] * n}, 10_000, f"{HERE}.names is not an array, or is too long"),
        (lambda n: {"rows": [[]] * n}, 10_000, f"{HERE}.rows is not an array, or is too long"),
        (lambda n: {"rows": [[1] * n]}, 100, f"{HERE}.rows is not an array, or is too long"),
        (lambda n: {"shapes": [[1] * n]}, 64, f"{HERE}.shapes is not an array, or is too long"),
        (lambda n: {"shapes": [[n]]}, 1 << 48, f"{HERE}.shapes is not a size"),
        (lambda n: tensor(shape=[n]), 1 << 48, f"{HERE}.results[0].shape is not a size"),
        (lambda n: tensor(strides=[1] * n), 64, f"{HERE}.results[0].strides is not an array, or is too long"),
        (lambda n: tensor(digest="x" * n), 20_000, f"{HERE}.results[0].digest is not a string, or is too long"),
        (lambda n: tensor(shape=[1 << 20], values="A" * (4 * n)), 1 << 18, f"{HERE}.results[0] has too many values"),
        (lambda n: {"seconds": n}, 2**63 - 1, f"{HERE}.seconds is not a number"),
        (lambda n: {"seconds": -n}, 2**63 - 1, f"{HERE}.seconds is not a number"),
    ],
)  # fmt: skip
def test_the_largest_and_one_more(make: Any, most: int, problem: str) -> None:
    """Each limit of an answer."""
    assert fault(make(most)) == ""
    assert fault(make(most + 1)) == problem


@pytest.mark.parametrize(
    ("name", "make", "problem"),
    [
        ("machine", lambda n: {**MACHINE, **{str(at): 0 for at in range(n - len(MACHINE))}}, "machine"),
        ("kinds", lambda n: {str(at): {} for at in range(n)}, "kinds"),
        ("kinds", lambda n: {"waits": {str(at): 0 for at in range(n)}}, "kinds.waits"),
    ],
)
def test_fifty_names(name: str, make: Any, problem: str) -> None:
    """Facts about the machine, kinds, and facts about a kind."""
    assert fault({}, **{name: make(50)}) == ""
    assert fault({}, **{name: make(51)}) == f"{problem} is not an object, or is too large"


def test_a_hundred_thousand_cases() -> None:
    """Of a kind."""
    assert fault({}, answers={"waits": {str(at): {} for at in range(100_000)}}) == ""
    more = {"waits": {str(at): {} for at in range(100_001)}}
    assert fault({}, answers=more) == "answers.waits is not an object, or is too large"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"results": [{"python": "int"}]}, f"{HERE}.results[0] has fields other than python and value"),
        ({"results": [{"python": "int", "value": "1", "more": 1}]},
         f"{HERE}.results[0] has fields other than python and value"),
        ({"results": [{"python": 1, "value": "1"}]}, f"{HERE}.results[0] is not a string, or is too long"),
        ({"results": [{"python": "int", "value": 1}]}, f"{HERE}.results[0] is not a string, or is too long"),
        ({"results": [3]}, f"{HERE}.results[0] is not an object, or is too large"),
        ({"results": [{}, {}]}, f"{HERE}.results[0] has an unknown dtype"),
        (tensor(odd=1), f"{HERE}.results[0] has an unknown field"),
        (tensor(shape=None), f"{HERE}.results[0].shape is not an array, or is too long"),
        (tensor(shape=[True]), f"{HERE}.results[0].shape is not a size"),
        (tensor(shape=[1.0]), f"{HERE}.results[0].shape is not a size"),
        (tensor(strides=[-1]), f"{HERE}.results[0].strides is not a size"),
        (tensor(layout=1), f"{HERE}.results[0].layout is not a string, or is too long"),
        (tensor(device=1), f"{HERE}.results[0].device is not a string, or is too long"),
        (tensor(values=1), f"{HERE}.results[0] has too many values"),
        ({"seconds": True}, f"{HERE}.seconds is not a number"),
        ({"seconds": "1"}, f"{HERE}.seconds is not a number"),
        ({"waits": 0}, f"{HERE}.waits is neither true nor false"),
        ({"rows": [1]}, f"{HERE}.rows is not an array, or is too long"),
        ({"rows": [[[]]]}, f"{HERE}.rows is not a string, or is too long"),
        ({"rows": [[1 << 63]]}, f"{HERE}.rows is not a number"),
        ({"rows": [[None, True, 1, 1.5, "x"]]}, ""),
        ({"names": [1]}, f"{HERE}.names is not a string, or is too long"),
        ({"shapes": [1]}, f"{HERE}.shapes is not an array, or is too long"),
        ({"does": None}, f"{HERE}.does is not one of computes, refuses, crashes, hangs, unasked"),
        (3, f"{HERE} is not an object, or is too large"),
        ({"o" * 50: 1}, f"{HERE} has an unknown field: '{'o' * 40}'"),
    ],
)  # fmt: skip
def test_each_field_has_its_form(answer: Any, problem: str) -> None:
    """Another type, one field too many, one too few."""
    assert fault(answer) == problem


def test_long_names_are_cut_in_messages() -> None:
    """Of a kind to 40 characters, of a case to 80."""
    assert fault({}, answers={"k" * 50: {}}) == f"it has answers of an unknown kind: '{'k' * 40}'"
    assert fault({}, answers={"waits": {"c" * 90: 1}}) == f"answers.waits.{'c' * 80} is not an object, or is too large"


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", ITEM_SIZES)
def test_values_have_the_size_of_their_dtype(name: str) -> None:
    """As many bytes an element as torch has: fewer elements than the shape are kept, not more, and whole ones."""
    size = torch.empty(0, dtype=getattr(torch, name)).element_size()
    assert ITEM_SIZES[name] == size

    def kept(count: int) -> str:
        return fault({"results": [{"dtype": name, "shape": [2, 2], "values": base64.b64encode(bytes(count)).decode()}]})

    wrong = f"{HERE}.results[0] has values that do not fit its shape"
    assert [kept(0), kept(size), kept(4 * size), kept(5 * size)] == ["", "", "", wrong]
    assert size == 1 or kept(size + 1) == wrong


def test_no_more_than_32_mib_are_read(tmp_path: Path) -> None:
    """Of a file; one byte less is read, and is no gzip file here."""
    path = tmp_path / "x.json.gz"
    for size, problem in (
        (32 << 20, "not a gzip file, or is damaged"),
        ((32 << 20) + 1, "too large: more than 32 MiB"),
    ):
        with path.open("wb") as file:
            file.truncate(size)
        with pytest.raises(UsageError, match=f"^{re.escape(str(path))} is {problem}$"):
            read_answers(path)

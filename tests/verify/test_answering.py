"""An answer as plain data: what a result looks like, which of its values are kept, warnings, and refusals."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
import warnings
from typing import Any

import pytest
import torch

from anymps.verify.cases import answered
from anymps.verify.cases._answering import digest_of, refusal, sampled

pytestmark = pytest.mark.usefixtures("virtual_device")


def only(call: Any, keep: int = 10, **more: Any) -> dict[str, Any]:
    """The only result of a call."""
    answer = answered(call, keep, **more)
    assert answer["does"] == "computes"
    (result,) = answer["results"]
    return dict(result)


def test_a_result_on_the_device() -> None:
    """Its dtype, sizes and strides; 16 digits of its bytes; its values."""
    raw = struct.pack("<6f", 1, 4, 2, 5, 3, 6)
    assert only(lambda: torch.tensor([[1.0, 2, 3], [4, 5, 6]], device="mps").t()) == {
        "dtype": "float32",
        "shape": [3, 2],
        "strides": [1, 3],
        "digest": hashlib.sha256(raw).hexdigest()[:16],
        "values": base64.b64encode(raw).decode(),
    }


def test_a_result_elsewhere_and_one_that_is_sparse() -> None:
    """The device is told if it is another, the layout in place of strides."""
    assert only(lambda: torch.ones(1))["device"] == "cpu"
    sparse = only(lambda: torch.eye(2).to_sparse(), values=False)
    assert sparse == {"dtype": "float32", "shape": [2, 2], "layout": "sparse_coo", "device": "cpu"}
    raw = struct.pack("<4f", 1, 0, 0, 1)
    assert only(lambda: torch.eye(2).to_sparse())["values"] == base64.b64encode(raw).decode()


def test_a_result_without_values() -> None:
    """For random numbers; of a Python number only its type, then."""
    assert only(lambda: torch.ones(2, device="mps"), values=False) == {"dtype": "float32", "shape": [2], "strides": [1]}
    assert only(lambda: 3) == {"python": "int", "value": "3"}
    assert only(lambda: 0.5, values=False) == {"python": "float", "value": ""}


def test_which_values_are_kept() -> None:
    """All, or some at equal distances, the first and the last among them."""
    assert sampled(3, 3) == [0, 1, 2]
    assert sampled(0, 3) == []
    assert sampled(10, 4) == [0, 3, 6, 9]
    assert sampled(11, 2) == [0, 10]
    kept = only(lambda: torch.arange(10, dtype=torch.uint8, device="mps"), keep=4)["values"]
    assert list(base64.b64decode(kept)) == [0, 3, 6, 9]


def test_one_kind_of_nan() -> None:
    """Which one an operation gives depends on the processor: all have one digest, in complex numbers too."""
    odd = torch.tensor([0x7FC00001, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)
    plain = torch.full((3,), math.nan)
    assert digest_of([odd]) == digest_of([plain])
    for dtype in (torch.float16, torch.bfloat16):
        assert digest_of([torch.tensor([-1], dtype=torch.int16).view(dtype)]) == digest_of(
            [torch.tensor([math.nan], dtype=dtype)]
        )
    real = torch.tensor([1.0])
    assert digest_of([torch.complex(real, odd[:1])]) == digest_of([torch.complex(real, plain[:1])])
    assert digest_of([torch.complex(odd[:1], real)]) == digest_of([torch.complex(plain[:1], real)])
    assert digest_of([torch.complex(real, plain[:1])]) != digest_of([torch.complex(plain[:1], real)])
    assert digest_of([torch.tensor([1 + 2j]).conj()]) == digest_of([torch.tensor([1 - 2j])])


def test_a_digest_tells_values_sizes_and_dtypes_apart() -> None:
    """Eight digits, of all tensors in their order."""
    zeros = torch.zeros(4)
    others = [[], [zeros[:2]], [zeros.view(2, 2)], [zeros.int()], [zeros + 1], [zeros, zeros], [torch.empty(0)]]
    digests = [digest_of(one) for one in ([zeros], *others)]
    assert len(set(digests)) == len(digests)
    assert digests[0] == hashlib.sha256(b"torch.float32 (4,)" + bytes(16)).hexdigest()[:8]


def test_a_refusal() -> None:
    """The class and the whole text, also where only reading the results brings it out."""

    def refused() -> None:
        raise IndexError("no\nsuch place")

    assert answered(refused, 1) == {"does": "refuses", "error": "IndexError", "text": "no\nsuch place"}
    assert refusal(ValueError()) == {"does": "refuses", "error": "ValueError", "text": ""}


def test_warnings_about_the_device() -> None:
    """Those that name it, each once; others are left out, and torch's own way to warn is as before."""

    def warned() -> torch.Tensor:
        for text in ("runs on the CPU, not on MPS", "something else", "runs on the CPU, not on MPS", "mps again"):
            warnings.warn(text, stacklevel=1)
        assert torch.is_warn_always_enabled()
        return torch.ones(1)

    before = torch.is_warn_always_enabled()
    assert answered(warned, 1)["warns"] == ["runs on the CPU, not on MPS", "mps again"]
    assert "warns" not in answered(lambda: torch.ones(1), 1)
    assert torch.is_warn_always_enabled() is before

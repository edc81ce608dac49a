"""Under `ANYMPS_KERNELS=real` each value that the pages list as a Mac's is a program's: of 2.13, one after the other.

Needs the kernels of torch 2.13.0 (`anymps kernels add --download`).
"""

from __future__ import annotations

import functools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from anymps.rules.faults import Effect, all_hazards
from kernel_files import needs_kernels
from oracle.operators import OPERATORS
from processes import MAC, run_python

RELEASE = "2.13.0"
_PAGE = Path(__file__).parents[2] / "docs" / "fidelity" / f"kernels-{RELEASE.rpartition('.')[0]}.json"
_EXAMPLE = re.compile(r"of (?P<given>.+): (?P<device>\S+) on the device, (?P<kernel>\S+) by the kernel")
_DIFFERENT = [row for row in json.loads(_PAGE.read_text())["rows"] if row["verdict"] == "different"]
_BY_ELEMENT = {one.title: one for one in OPERATORS}

_ROWS = "its example is a number of a row or a matrix; tests/oracle runs the launch that the mode takes"
_NO_LAUNCH = "the mode describes no launch of it"
_FEW, _MANY = "scaled_dot_product_attention, few queries", "scaled_dot_product_attention, many queries"
NOT_RUN = {
    **{f"{name}, PYTORCH_MPS_PREFER_METAL": _NO_LAUNCH for name in ("mm", "addmm", "bmm", "baddbmm", "addbmm")},
    **{f"{scan}, {way}": _NO_LAUNCH for scan in ("cumprod", "cumsum") for way in ("columns", "in blocks", "long rows")},
    **{f"cumsum, {name}": _ROWS for name in ("many short rows", "transposed")},
    **{f"linalg.{name}": _ROWS for name in ("cholesky_ex", "cholesky_ex, upper", "cross", "qr")},
    **dict.fromkeys(("pow, 3", "pow, transposed"), _ROWS),
    **dict.fromkeys(("nn.functional.elu", "nn.functional.layer_norm, long rows"), _ROWS),
    **dict.fromkeys((_FEW, f"{_FEW}, causal", f"{_FEW} and many keys", f"{_FEW} and many keys, causal"), _ROWS),
    **dict.fromkeys((_MANY, f"{_MANY}, causal"), _ROWS),
    **dict.fromkeys(("cdist, backward, p = 3.0", "cdist, backward, p = inf", "square"), _NO_LAUNCH),
    "linalg.householder_product": _NO_LAUNCH,
    "special.chebyshev_polynomial_t, bfloat16": "the page's NaN stood in a row of numbers; alone it gives NaN",
}
"""What of the page the mode cannot show by its example, and why."""

# What a program says, by what it shows; `real` is a list of numbers, or of whether something holds.
BY_HAND: dict[str, tuple[str, list[Any]]] = {
    "abs, integers above 2^24": (
        "torch.tensor([2**24 + 1, -(2**53) - 1], device='mps').abs().tolist()",
        [2**24, 2**53],
    ),
    "abs_, in place": ("torch.tensor([-(2**24) - 1], device='mps').abs_().tolist()", [2**24]),
    "subnormal numbers are zero": ("(torch.tensor([1e-40, 1.0]).to('mps') * 1.0).tolist()", [0.0, 1.0]),
    "erfc of 10 has no digits": ("torch.tensor([10.0], device='mps').erfc().tolist()", [0.0]),
    "hypot overflows": ("torch.hypot(*torch.tensor([[3e38], [3e38]]).to('mps')).isinf().tolist()", [True]),
    "amax, int64 (MPS620)": ("[torch.amax(-torch.arange(1, 34, device='mps')).item()]", [0]),
    "amin, int64 (MPS620)": ("[torch.amin(torch.arange(1, 34, device='mps')).item()]", [0]),
    "nextafter, bfloat16 (MPS619)": (
        "torch.nextafter(*torch.tensor([[1.0], [2.0]], dtype=torch.bfloat16).to('mps')).tolist()",
        [1.0],
    ),
    "histogram, a number just below its edges (MPS648)": (
        "torch.histogram(*torch.tensor([[0.5, -1e-6, 0.5], [0.0, 1.0, 2.0]]).to('mps'))[0].tolist()",
        [2, 1],
    ),
    "linalg.cholesky_ex, a pivot in the second block (MPS649)": (
        "[torch.linalg.cholesky_ex(torch.diag(39.0 - torch.arange(41)).to('mps')).info.item()]",
        [8],
    ),
    "adaptive_max_pool2d, uneven windows (MPS630)": (
        "F.adaptive_max_pool2d(torch.arange(25.0).view(1, 5, 5).to('mps'), 3).flatten().tolist()",
        [12, 13, 14, 17, 18, 19, 22, 23, 24],
    ),
    "layer_norm, rows far from zero (MPS638)": (
        "F.layer_norm((torch.arange(8.0) / 8 + 4000).to('mps'), (8,))[:2].tolist()",
        [-138.3496551513672, -98.82118225097656],
    ),
    "group_norm, groups far from zero (MPS639)": (
        "F.group_norm((torch.arange(8.0) / 8 + 4000).view(1, 2, 4).to('mps'), 1).flatten()[:2].tolist()",
        [-0.9999738931655884, -0.7142670154571533],
    ),
    "layer_norm, halves with float32 weights (MPS634)": (
        "mixed_norms()",
        [math.inf, 1.204268070216818e31],
    ),
    "embedding_bag, an index one too large": (
        "F.embedding_bag(torch.tensor([5], device='mps'), torch.arange(18.0).view(6, 3).to('mps')[:5], "
        "torch.tensor([0], device='mps'), mode='sum').flatten().tolist()",
        [15, 16, 17],
    ),
    "a 0-dim view of a CPU tensor (MPS605)": (
        "(torch.zeros(2, device='mps') + torch.tensor([1.0, 2.0, 3.0])[2]).tolist()",
        [1.0, 1.0],
    ),
    "lerp, float32, a weight of 1": ("lerp(1e8, 1.0, torch.float32)", [0.0]),
    "lerp, float16, a weight of 1": ("lerp(60000.0, 1.0, torch.float16)", [0.0]),
    "lerp, bfloat16, a weight of 1": ("lerp(1e8, 1.0, torch.bfloat16)", [0.0]),
    "lerp, complex64, a weight of 1": ("lerp(1e8, 1.0, torch.complex64)", [0.0]),
}
NEAR = {
    "sum, float32, in another order": "other(lambda x: x.sum(-1), 64, 900)",
    "sum, complex64, in another order": "other(lambda x: x.sum(-1), 64, 900, dtype=torch.complex64)",
    "nansum, float32, in another order": "other(lambda x: x.nansum(-1), 64, 900)",
    "mean, float32, in another order": "other(lambda x: x.mean(-1), 64, 900)",
    "mean, complex64, in another order": "other(lambda x: x.mean(-1), 64, 900, dtype=torch.complex64)",
    "nn.functional.layer_norm, float32, in another order": "other(lambda x: F.layer_norm(x, (900,)), 64, 900)",
    "native_group_norm, float32, in another order": "other(lambda x: F.group_norm(x, 4), 2, 8, 99)",
    "native_group_norm_backward, float32, in another order": "other(group_gradient, 2, 8, 99)",
    "upsample_bilinear2d, float32, in another order": "resized('bilinear', 2, 3, 19, 19)",
    "upsample_bilinear2d, bfloat16, rounded once": "resized('bilinear', 4, 9, 99, 99, dtype=torch.bfloat16, near=0.1)",
    "upsample_bilinear2d, uint8, cut off, not rounded": "resized('bilinear', 2, 3, 19, 19, dtype=torch.uint8, near=1)",
    "upsample_bicubic2d, float32, in another order": "resized('bicubic', 2, 3, 19, 19)",
    "upsample_bicubic2d, float16, rounded once": "resized('bicubic', 2, 3, 19, 19, dtype=torch.float16, near=0.01)",
    "upsample_bicubic2d, bfloat16, rounded once": "resized('bicubic', 2, 3, 19, 19, dtype=torch.bfloat16, near=0.1)",
    "upsample_trilinear3d, float32, in another order": "resized('trilinear', 2, 3, 9, 9, 9)",
    "upsample_trilinear3d, float16, rounded once": (
        "resized('trilinear', 2, 3, 9, 9, 9, dtype=torch.float16, near=0.01)"
    ),
    "upsample_trilinear3d, bfloat16, rounded once": (
        "resized('trilinear', 2, 3, 9, 9, 9, dtype=torch.bfloat16, near=0.1)"
    ),
    "grid_sampler_2d, float32, in another order": (
        "other(lambda x: F.grid_sample(x, x[:, :2].sin().permute(0, 2, 3, 1)), 1, 3, 19, 19)"
    ),
    "grid_sampler_3d, float32, in another order": (
        "other(lambda x: F.grid_sample(x, x[:, :3].sin().permute(0, 2, 3, 4, 1)), 1, 3, 9, 9, 9)"
    ),
    "grid_sampler_2d_backward, float32, in another order": "other(lambda x: flowed(x, 2), 1, 3, 19, 19, near=1e-3)",
    "grid_sampler_2d_backward, float16, in another order": (
        "other(lambda x: flowed(x, 2)[: x.numel()], 1, 3, 19, 19, dtype=torch.float16, near=0.1)"
    ),
    "grid_sampler_2d_backward, bfloat16, in another order": (
        "other(lambda x: flowed(x, 2)[: x.numel()], 1, 3, 19, 19, dtype=torch.bfloat16, near=0.5)"
    ),
    "grid_sampler_3d_backward, float32, in another order": "other(lambda x: flowed(x, 3), 1, 3, 9, 9, 9, near=1e-3)",
    "upsample_bicubic2d_aa, float32, in another order": (
        "other(lambda x: F.interpolate(x, size=(13, 7), mode='bicubic', antialias=True), 2, 3, 19, 19)"
    ),
    "logcumsumexp, complex64, a full turn": "turns()",
}
"""Numbers that are not the CPU's, and near them."""
BY_HAND |= {name: (code, [True, True]) for name, code in NEAR.items()}
_GRAPH = "MPSGraph computes it on a Mac, which the wheel does not hold"
_HOST = "the host's code copies between devices, no kernel of the wheel does"
_LARGE = "it takes tensors of gigabytes"
NOT_SHOWN = {
    "MPS601": _HOST,
    "MPS602": _HOST,
    "MPS603": _HOST,
    "MPS611": _GRAPH,
    "MPS612": _GRAPH,
    "MPS614": _GRAPH,
    "MPS616": _LARGE,
    **dict.fromkeys(
        ("MPS606", "MPS607", "MPS608", "MPS610"), "linear layers and batched products are MPSGraph's or MPS's"
    ),
    "MPS617": "the kernel of addcmul has no launch described",
    "MPS618": "a GPU gives any number; here the kernel divides by zero, which stops it",
    "MPS621": _GRAPH,
    "MPS623": _GRAPH,
    "MPS624": _GRAPH,
    "MPS627": _GRAPH,
    "MPS632": _GRAPH,
    "MPS640": _GRAPH,
    "MPS642": "attention has no launch described",
    "MPS645": "unique has no launch described",
    "MPS647": "the host's code gives the kernel one right side for all",
    "MPS651": _LARGE,
    "MPS652": _LARGE,
    "MPS654": _LARGE,
    "MPS661": "here threads add in one order in every run",
    "MPS679": "no launch with scale_grad_by_freq, which the host's code ignores, is described",
}
"""Rules of wrong values in 2.13 that the mode cannot show, and why."""

_SCRIPT = """
import json, math, sys
import torch
import torch.nn.functional as F
import anymps
anymps.enable(MAC, quiet=True)
from anymps.device import real_calls
from oracle.operators import OPERATORS

torch.manual_seed(0)
CALLS = {one.title: one.call for one in OPERATORS}

def lerp(a, b, dtype):
    a, b, one = (torch.tensor([it], dtype=dtype).to("mps") for it in (a, b, 1.0))
    return [it.real for it in torch.lerp(a, b, one).tolist()]

def other(function, *sizes, dtype=torch.float32, near=1e-5):
    x = torch.randn(sizes, dtype=dtype) if dtype != torch.uint8 else torch.randint(0, 256, sizes, dtype=dtype)
    found, plain = function(x.to("mps")).cpu(), function(x)
    if not dtype.is_complex:
        found, plain = found.double(), plain.double()
    return [not torch.equal(found, plain), torch.allclose(found, plain, atol=near)]

def mixed_norms():
    # the program of pytorch issue 190054, which has these numbers from a Mac
    torch.manual_seed(0)
    found = []
    for dtype in (torch.float16, torch.bfloat16):
        given = torch.randn(4, 8, dtype=dtype), torch.randn(8), torch.randn(8)
        plain, real = (F.layer_norm(x, (8,), *own) for x, *own in (given, [it.to("mps") for it in given]))
        found.append((real.cpu().float() - plain.float()).abs().max().item())
    return found

def resized(mode, *sizes, **options):
    return other(lambda x: F.interpolate(x, scale_factor=1.7, mode=mode), *sizes, **options)

def flowed(x, dims):
    x = x.clone().requires_grad_()
    grid = x.detach()[:, :dims].sin().movedim(1, -1).clone().requires_grad_()
    F.grid_sample(x, grid).sin().sum().backward()
    return torch.cat([x.grad.flatten(), grid.grad.flatten()])

def group_gradient(x):
    x = x.clone().requires_grad_()
    weight, bias = torch.ones(8, device=x.device), torch.zeros(8, device=x.device)
    F.group_norm(x, 4, weight.requires_grad_(), bias.requires_grad_()).sin().sum().backward()
    return x.grad

def turns():
    x = torch.complex(torch.randn(5, 5, 5), 9 * torch.randn(5, 5, 5))
    apart = (x.to("mps").logcumsumexp(1).cpu() - x.logcumsumexp(1)).imag / (2 * math.pi)
    return [bool((apart.round() != 0).any()), torch.allclose(apart, apart.round(), atol=1e-4)]

def number(text):
    if "j" in text:
        return complex(text.strip("()"))
    return float(text) if any(one in text for one in ".naif") else int(text)

by_element, by_hand = json.loads(sys.stdin.read() if len(sys.argv) < 2 else open(sys.argv[1]).read())
answers = {}
for title, dtype, given in by_element:
    tensors = [torch.tensor([number(one)], dtype=getattr(torch, dtype)).to("mps") for one in given]
    before = sum(real_calls().values())
    (value,) = CALLS[title](*tensors).tolist()
    ran = sum(real_calls().values()) > before
    parts = [value.real, value.imag] if isinstance(value, complex) else [value]
    answers[f"{title}, {dtype}"] = [ran, [str(one) for one in parts]]
for name, code in by_hand.items():
    before = sum(real_calls().values())
    value = eval(code)
    answers[name] = [sum(real_calls().values()) > before, value]
print(json.dumps(answers))
"""


def _name(row: dict[str, Any]) -> str:
    return f"{row['operator']}, {row['dtype']}"


def _example(row: dict[str, Any]) -> tuple[list[str], str, str]:
    """What the operator was given, and the numbers of the device and of the kernel."""
    match = _EXAMPLE.fullmatch(row["example"])
    assert match is not None, row["example"]
    return match["given"].split(", "), match["device"], match["kernel"]


def _runs(row: dict[str, Any]) -> bool:
    return row["operator"] in _BY_ELEMENT and not _has_reason(row)


def _has_reason(row: dict[str, Any]) -> bool:
    return not NOT_RUN.keys().isdisjoint({row["operator"], _name(row)})


@functools.cache
def _answers(folder: Path) -> dict[str, Any]:
    """What a program sees, by the name of the case: whether a kernel computed it, and the values."""
    by_element = [(row["operator"], row["dtype"], _example(row)[0]) for row in _DIFFERENT if _runs(row)]
    asked = folder / "asked.json"
    asked.write_text(json.dumps([by_element, {name: code for name, (code, _) in BY_HAND.items()}]))
    script = f"import sys\nsys.argv = ['', {str(asked)!r}]\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    script += f"MAC = {MAC!r}\n{_SCRIPT}"
    return dict(json.loads(run_python(script, {"ANYMPS_KERNELS": "real"}).lines[-1]))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All of it from one process."""
    needs_kernels(RELEASE, installed=RELEASE)
    return _answers(tmp_path_factory.mktemp("values"))


def _distance(left: str, right: str) -> float:
    """How far apart two numbers are: zero for equal ones, NaNs among them, and without end for another kind."""
    a, b = float(left), float(right)
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or math.isinf(b):
        return 0.0 if a == b or (math.isnan(a) and math.isnan(b)) else math.inf
    return abs(int(left) - int(right)) if "." not in left + right and "e" not in left + right else abs(a - b)


@pytest.mark.parametrize("row", [row for row in _DIFFERENT if _runs(row)], ids=_name)
def test_the_number_of_the_page(answers: dict[str, Any], row: dict[str, Any]) -> None:
    """It is the kernel's, up to this machine's `exp` and `sin`, and not the one that the device has else."""
    _, device, kernel = _example(row)
    ran, values = answers[_name(row)]
    assert ran
    found = min(values, key=lambda one: _distance(one, kernel))
    apart = _distance(device, kernel)
    limit = apart / 4 if math.isfinite(apart) else 4e-6 * abs(float(kernel)) if math.isfinite(float(kernel)) else 0.0
    assert _distance(found, kernel) <= limit, found
    assert found != device


@pytest.mark.parametrize("name", BY_HAND)
def test_the_value_that_a_page_tells(answers: dict[str, Any], name: str) -> None:
    """Of several numbers, or of a shape that an example of one number has not."""
    assert answers[name] == [True, BY_HAND[name][1]]


def test_nothing_of_the_page_is_left_out() -> None:
    """Each operator that differs is shown by its example or by hand, or there is a reason."""
    rest = {_name(row) for row in _DIFFERENT if not _runs(row) and not _has_reason(row)}
    assert {name for name in rest if not any(one.startswith(name) for one in BY_HAND)} == set()
    assert {one for row in _DIFFERENT for one in (row["operator"], _name(row))} >= set(NOT_RUN)


def test_each_rule_of_a_wrong_value_is_shown_or_has_a_reason() -> None:
    """Those that hold in torch 2.13; one that is shown has no reason not to be."""
    wrong = {Effect.WRONG, Effect.MAY_BE_WRONG, Effect.VARIES, Effect.OPEN}
    rules = {one.id for one in all_hazards() if one.effect in wrong and one.since <= (2, 13) <= one.until}
    shown = set(re.findall(r"MPS\d+", " ".join(BY_HAND)))
    assert rules - shown == set(NOT_SHOWN)

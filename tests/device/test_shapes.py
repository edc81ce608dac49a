"""The `shape` substrate: the memory of the host substrate to the byte, its refusals, and what it answers for values."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from processes import MAC, Result, run_with_torch

NO_VALUES = 64
"""Bytes up to which buffers keep their values, where nothing but single numbers shall be computed."""

START = f"""
import gc, json, sys, warnings
warnings.simplefilter("ignore")
import anymps
from anymps.device import enable, native
enable({MAC!r}, substrate="SUBSTRATE", fallback=True, quiet=True)
import torch
from torch import nn
from torch.nn import functional as F
if KEEP is not None:
    native().keep_values_up_to(KEEP)
dev = "mps"
def measured(work):
    gc.collect()
    torch.mps.empty_cache()
    native().reset_peak_memory()
    torch.manual_seed(0)
    try:
        kept = work()
        error = ""
    except Exception as raised:
        kept, error = None, f"{{type(raised).__name__}}: {{raised}}"
    numbers = native().memory_statistics()
    return [error, numbers["allocated"][0], numbers["allocated"][1], numbers["reserved"][1]]
"""


def run(body: str, substrate: str, keep: int | None = None) -> Result:
    """Runs `body` on a substrate in a process of its own."""
    return run_with_torch(START.replace("SUBSTRATE", substrate).replace("KEEP", repr(keep)) + dedent(body))


# Each piece defines a function; what it returns is alive when the memory is read.
PIECES = """
def linear():
    net = nn.Linear(300, 50).to(dev)
    net(torch.randn(32, 300, device=dev)).sum().backward()
    return net

def convolution():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)).to(dev)
    net(torch.randn(4, 3, 33, 33, device=dev)).mean().backward()
    return net

def attention():
    q = torch.randn(2, 4, 64, 16, device=dev, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    return q

def recurrent():
    net = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True).to(dev)
    out, state = net(torch.randn(2, 9, 16, device=dev))
    out.sum().backward()
    return net, state

def embedding():
    net = nn.Embedding(100, 24).to(dev)
    net(torch.randint(0, 100, (4, 30), device=dev)).sum().backward()
    return net

def cross_entropy():
    x = torch.randn(40, 100, device=dev, requires_grad=True)
    F.cross_entropy(x, torch.randint(0, 100, (40,)).to(dev)).backward()
    return x

def both_ways():
    x = torch.randn(100, 7).to(dev)
    return x, x.cpu(), x.t().cpu(), x.to(torch.float16), x.t().contiguous()

def scaler():
    net = nn.Linear(64, 64).to(dev)
    scaler = torch.amp.GradScaler("mps")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(2):
        with torch.autocast("mps", dtype=torch.float16):
            loss = net(torch.randn(8, 64, device=dev)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return net, optimizer

def checkpointing():
    from torch.utils.checkpoint import checkpoint
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(dev)
    x = torch.randn(16, 64, device=dev, requires_grad=True)
    checkpoint(net, x, use_reentrant=False).sum().backward()
    return net, x

def optimizers():
    kept = []
    for kind in (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD):
        for how in ({"fused": True}, {"foreach": True}, {"foreach": False}):
            net = nn.Linear(70, 30).to(dev)
            optimizer = kind(net.parameters(), lr=1e-3, **how)
            for _ in range(2):
                net(torch.randn(4, 70, device=dev)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            kept.append((net, optimizer))
    return kept

def falls_back():
    x = torch.randn(6, 50, device=dev, requires_grad=True)
    F.pdist(x).sum().backward()
    return x

def outputs():
    out = torch.empty(0, device=dev)
    torch.add(torch.ones(40, 50, device=dev), 1, out=out)
    grown = torch.empty(3, device=dev).resize_(3000)
    return out, grown, torch.cat([out, out]), torch.stack([out, out])[:, 1:].clone()

def known_mask():
    ids = torch.arange(400).to(dev)
    return torch.randn(400, 9, device=dev)[ids % 4 == 0]
"""
NAMES = [line[4:-3] for line in PIECES.splitlines() if line.startswith("def ")]


@pytest.fixture(scope="module")
def numbers() -> dict[tuple[str, int | None], dict[str, list[object]]]:
    """Memory of every piece, on the host and on shapes, with and without values of small buffers."""
    body = PIECES + f"\nprint(json.dumps({{name: measured(globals()[name]) for name in {NAMES!r}}}))\n"
    found = {}
    for substrate, keep in (("host", None), ("shape", None), ("shape", NO_VALUES)):
        result = run(body, substrate, keep)
        found[substrate, keep] = json.loads(result.lines[-1])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_that_of_the_host_substrate(
    name: str, numbers: dict[tuple[str, int | None], dict[str, list[object]]]
) -> None:
    """Current bytes, their peak and the peak of the heaps are the same; so is the error, which is none."""
    host = numbers["host", None][name]
    assert host[0] == ""
    assert int(str(host[2])) > 0
    assert numbers["shape", None][name] == host


@pytest.mark.parametrize("name", [name for name in NAMES if name != "known_mask"])
def test_memory_is_the_same_where_nothing_is_computed(
    name: str, numbers: dict[tuple[str, int | None], dict[str, list[object]]]
) -> None:
    """The bytes do not hang on small buffers that keep their values; only masks do."""
    assert numbers["shape", NO_VALUES][name] == numbers["host", None][name]


ASSUMING = """
def shapes(work):
    with anymps.record() as capture:
        result = work()
    marks = sorted({use.operator for use in capture.recording.marks("anymps::assumed.")})
    return [list(result.shape) if isinstance(result, torch.Tensor) else repr(result), marks]

x = torch.randn(600, 500, device=dev)
mask = x > 0
small = torch.tensor([0, 3, 0, 5]).to(dev)
for name, work in {
    "unknown mask": lambda: x[mask],
    "masked_select": lambda: torch.masked_select(x, mask),
    "nonzero": lambda: x.nonzero(),
    "unique": lambda: torch.unique(x),
    "bool": lambda: bool(mask.any()),
    "item": lambda: x.sum().item(),
    "integer": lambda: x.argmax().item(),
    "equal": lambda: torch.equal(x, x + 1),
    "cpu": lambda: x[:2, :2].cpu().tolist(),
    "known item": lambda: small.sum().item(),
    "known mask": lambda: small[small > 0],
}.items():
    print(json.dumps([name, *shapes(work)]))
"""


def test_what_is_assumed_is_said() -> None:
    """A number is 0, a truth value False, all is selected, nonzero, unique; each leaves a mark, what is known none."""
    found = {name: tuple(rest) for name, *rest in map(json.loads, run(ASSUMING, "shape").lines)}
    assert found == {
        "unknown mask": ([300000], ["anymps::assumed.aten::index.Tensor"]),
        "masked_select": ([300000], ["anymps::assumed.aten::masked_select"]),
        "nonzero": ([300000, 2], ["anymps::assumed.aten::nonzero"]),
        "unique": ([300000], ["anymps::assumed.aten::_unique2"]),
        "bool": ("False", ["anymps::assumed.item"]),
        "item": ("0.0", ["anymps::assumed.item"]),
        "integer": ("0", ["anymps::assumed.item"]),
        "equal": ("False", ["anymps::assumed.aten::equal"]),
        "cpu": ("[[0.0, 0.0], [0.0, 0.0]]", ["anymps::assumed.copy to cpu"]),
        "known item": ("8", []),
        "known mask": ([2], []),
    }


REFUSED = """
def text(work):
    try:
        work()
        return "nothing was raised"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
x = torch.randn(4, 5, device=dev)
print(json.dumps([
    text(lambda: torch.zeros(3, dtype=torch.float64, device=dev)),
    text(lambda: x.to(torch.float64)),
    text(lambda: x + torch.randn(4, 5)),
    text(lambda: x.view(7)),
    text(lambda: F.linear(x, torch.randn(3, 5))),
    text(lambda: torch.empty(1 << 40, device=dev)),
    text(lambda: x.sum().backward()),
]))
"""


def test_refusals_have_the_same_words() -> None:
    """What MPS refuses is refused alike; only torch's own texts about shapes that do not fit are its meta kernels'."""
    host, shape = (json.loads(run(REFUSED, substrate).lines[-1]) for substrate in ("host", "shape"))
    assert "nothing was raised" not in host
    assert shape == host


def test_sparse_tensors_are_refused() -> None:
    """Their memory hangs on values; the text says that it is ours."""
    result = run(
        """
        try:
            torch.randn(3, 3).to_sparse().to(dev).coalesce().indices()
        except NotImplementedError as error:
            print(str(error).splitlines()[0])
        """,
        "shape",
    )
    assert result.lines == ["anymps: sparse tensors have no shapes to plan with; run this part on the host substrate"]

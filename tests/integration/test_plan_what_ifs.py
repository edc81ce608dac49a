"""`anymps plan` on what would help: what-ifs on whole scripts, and the first fix of a script that does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anymps.plan.inside._quantise import stored_bytes
from integration.plan_runs import TRAINING, planned, script

pytestmark = pytest.mark.integration
LANGUAGE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.nn import functional as F

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(256, 768)
        self.out = nn.Linear(256, 256)
    def forward(self, x):
        q, k, v = self.attention(x).view(*x.shape[:2], 8, 96).transpose(1, 2).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return x + self.out(y)

net = nn.Sequential(nn.Embedding(1000, 256), *(Block() for _ in range(6)), nn.Linear(256, 1000)).to("mps")
optimizer = torch.optim.%s
sets = TensorDataset(torch.randint(1000, (BATCH * 4, LENGTH)))
for step, (ids,) in enumerate(DataLoader(sets, batch_size=BATCH)):
    ids = ids.to("mps")
    loss = F.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def language(optimizer: str, batch: int, length: int) -> str:
    """A small language model with attention, of a data loader's batches."""
    text = LANGUAGE % optimizer
    return text.replace("BATCH", str(batch)).replace("LENGTH", str(length))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A plan of the language model with every change that there is."""
    folder = tmp_path_factory.mktemp("changes")
    changes = (
        "sequence=128",
        "accumulate=4",
        "batch=2",
        "bf16",
        "fp16",
        "nf4",
        "int8",
        "checkpoint",
        "unfused",
        "fused",
        "sgd",
        "adam",
    )
    options = [word for change in changes for word in ("--what-if", change)]
    name = script(folder, language("AdamW(net.parameters())", 8, 512))
    return planned(folder, "--mac", "M1 8GB", *options, name)


@pytest.mark.slow
def test_every_what_if_does_what_it_says(changed: dict[str, Any]) -> None:
    """Shorter sequences, smaller parts of a batch, half precision, recomputing: less; one at a time, in tensors."""
    changes = {change["change"]: change for change in changed["what_if"]}
    assert {change["problem"] for change in changes.values()} == {""}
    peak, parts = changed["peak"]["allocated"], changed["peak"]["categories"]
    of = {name: change["peak_allocated"] for name, change in changes.items()}
    assert (changed["batch"], changed["sequence"]) == (8, 512)
    # A quarter of the tokens, a sixteenth of the scores: what grows with them falls at least to a quarter and a half.
    assert of["sequence 128"] < 0.35 * peak
    # Parts of two samples each, one step an optimizer step as the script has it.
    assert of["accumulation over 4"] == of["batch 2"] < 0.4 * peak
    # Attention is computed in float32 whatever its inputs are, and its scores are most of this peak.
    for precision in ("bfloat16 autocast", "float16 autocast"):
        assert 0.9 * peak < of[precision] < 0.99 * peak
    assert of["activation checkpointing"] < peak - 0.3 * parts["activations"]
    # All layers are trained: adapters stand for them, and the embedding, the output and their states are frozen, too.
    assert {name: change.get("adapters") for name, change in changes.items() if "weights" in name} == {
        "nf4 weights": 12,
        "int8 weights": 12,
    }
    assert of["nf4 weights"] < of["int8 weights"]
    assert of["SGD"] <= peak - 0.8 * parts["optimizer state"]
    assert of["Adam"] == pytest.approx(peak, rel=0.01)
    steps = {name: change["times"][0]["seconds"] for name, change in changes.items()}
    assert steps["batch 2"] < changed["times"][0]["seconds"] < steps["activation checkpointing"]
    assert steps["accumulation over 4"] is None  # a measured step is one part
    assert of["for-loop optimizer"] <= 1.001 * peak
    assert of["fused optimizer"] <= 1.001 * peak


def test_one_quantised_weight_at_a_time_is_made_whole(tmp_path: Path) -> None:
    """Of a model of large layers: beside what is stored and the last layer, the peak has room for one, and no more."""
    text = TRAINING.replace("batch_size=8192", "batch_size=1").replace("2048, int", "24576, int")
    name = script(tmp_path, text.replace("torch.randn(20000, width)", "torch.randn(8, width)"))
    (tried,) = planned(tmp_path, "--mac", "M3 Ultra 512GB", "--no-larger", "--what-if", "nf4", name)["what_if"]
    whole = 4 * 24576**2
    kept = 11 * stored_bytes(24576, 24576, "nf4") + whole
    assert (tried["adapters"], tried["problem"]) == (11, "")
    assert kept + whole < tried["peak_allocated"] < kept + 1.2 * whole


def test_layers_of_bitsandbytes_take_the_bytes_that_a_plan_counts() -> None:
    """All tensors that a layer keeps in the installed release, with blocks that are whole and cut short."""
    nn = pytest.importorskip("bitsandbytes.nn", reason="measures layers of bitsandbytes (extra: integration)")
    for rows, columns in ((256, 1024), (100, 30)):
        weight = nn.Linear4bit(columns, rows, bias=False, quant_type="nf4").to("cpu").weight
        state = weight.quant_state
        kept = (weight.data, state.absmax, state.code, state.offset, state.state2.absmax, state.state2.code)
        assert sum(one.untyped_storage().nbytes() for one in kept) == stored_bytes(rows, columns, "nf4")
        weight = nn.Linear8bitLt(columns, rows, bias=False, has_fp16_weights=False).to("cpu").weight
        assert weight.nbytes + weight.SCB.nbytes == stored_bytes(rows, columns, "int8")


NO_LOADER = "it changed nothing: no data loader gives batches; put {batch} where the script's arguments have the size"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "change", "problem"),
    [
        ("char_gpt.py", "batch=2", NO_LOADER),
        ("digits_cnn.py", "checkpoint", "it changed nothing: the model has no repeated blocks"),
    ],
)
def test_what_ifs_that_the_examples_cannot_try(example: str, change: str, problem: str, tmp_path: Path) -> None:
    """One line says why."""
    path = Path(__file__).parents[2] / "examples" / example
    found = planned(tmp_path, "--mac", "M1 8GB", "--no-larger", "--what-if", change, str(path))
    assert [tried["problem"] for tried in found["what_if"]] == [problem]


def begins_with(folder: Path, *words: str) -> dict[str, Any]:
    """The change that a plan says to begin with."""
    (first,) = [fix for fix in planned(folder, *words)["first_fixes"] if fix["begin"]]
    return dict(first)


KEPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Sequential(*(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(8))).to("mps")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
total, outputs = 0, []
for (batch,) in DataLoader(TensorDataset(torch.randn(40000, 2048)), batch_size=8192):
    output = net(batch.to("mps"))
    loss = output.square().mean()
    %s
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "fix", "line"),
    [
        (language("AdamW(net.parameters())", 64, 1024), "batch", None),
        (language("AdamW(net.parameters())", 1, 8192), "sequence", None),
        (KEPT % "total = total + loss", "kept", 11),
        (KEPT % "outputs.append(output)", "kept", None),
        (TRAINING.replace("batch_size=8192", "batch_size=1").replace("2048, int", "24576, int"), "precision", None),
    ],
    ids=["a large batch", "a long sequence", "a sum of losses", "outputs in a list", "weights alone"],
)
def test_the_first_fix_is_the_one_that_helps(text: str, fix: str, line: int | None, tmp_path: Path) -> None:
    """The guides' order, less what does not apply: a batch of one cannot be halved, weights are not recomputed."""
    text = text.replace("torch.randn(20000, width)", "torch.randn(8, width)")
    first = begins_with(tmp_path, "--mac", "M1 8GB", script(tmp_path, text))
    assert (first["fix"], first["applies"]) == (fix, None if fix == "precision" else True)
    if line is not None:
        assert line in [place["line"] for place in first["lines"]]


@pytest.mark.slow
def test_recomputing_is_the_first_fix_of_one_picture(tmp_path: Path) -> None:
    """One sample that is no text, and whose size the model fixes: what is left is to recompute its activations."""
    text = TRAINING.replace("batch_size=8192", "batch_size=1").replace(
        "torch.randn(20000, width)", "torch.randn(8, 60000, width)"
    )
    fixes = planned(tmp_path, "--mac", "M1 8GB", script(tmp_path, text))["first_fixes"]
    applies = {fix["fix"]: fix["applies"] for fix in fixes}
    assert applies == {
        "batch": False,
        "sequence": None,
        "kept": False,
        "checkpoint": True,
        "precision": True,
        "watermark": True,
    }
    assert [fix["fix"] for fix in fixes] == ["batch", "sequence", "kept", "checkpoint", "precision", "watermark"]
    assert [fix["fix"] for fix in fixes if fix["begin"]] == ["sequence"]

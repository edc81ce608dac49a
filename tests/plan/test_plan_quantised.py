"""A plan's what-ifs `nf4` and `int8`: the bytes of a layer, which layers they are, and what is trained beside them."""

from __future__ import annotations

import pytest

from anymps.plan.inside._quantise import stored_bytes
from processes import run_with_torch

# rows, columns, and the bytes of all tensors that bitsandbytes 0.50.2 keeps for such a weight (read off
# `Linear4bit(..., quant_type="nf4")` with double quantisation, and `Linear8bitLt(..., has_fp16_weights=False)`).
MEASURED = [
    (4096, 4096, 8655940, 16793600),
    (1024, 4096, 2164804, 4198400),
    (14336, 4096, 30293060, 58777600),
    (256, 256, 34900, 66560),
    (100, 30, 2643, 3400),
    (7, 9, 1129, 91),
]


@pytest.mark.parametrize(("rows", "columns", "nf4", "int8"), MEASURED)
def test_a_layer_takes_the_bytes_that_bitsandbytes_keeps(rows: int, columns: int, nf4: int, int8: int) -> None:
    """Weights, scales and codes, to the byte, also where blocks are cut short."""
    assert (stored_bytes(rows, columns, "nf4"), stored_bytes(rows, columns, "int8")) == (nf4, int8)


MODEL = """
import torch, anymps
from torch import nn
from anymps.plan import Scenario
from anymps.plan.inside import apply
anymps.enable("M3 Pro 18GB", require="virtual", quiet=True)
scenario = Scenario(weights="%s")
applied = apply(scenario)

class Conv1D(nn.Module):  # as in GPT-2: the weight is transposed
    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.weight, self.bias = nf, nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))
    def forward(self, x):
        return x @ self.weight + self.bias

model = nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 128), Conv1D(64, 128), nn.LayerNorm(64), nn.Linear(64, 100))
def train(parameters, **kwargs):
    optimizer = torch.optim.AdamW(parameters, **kwargs)
    for _ in range(2):
        model(torch.arange(8, device="mps")).sum().backward()
        optimizer.step()
    print(applied.quantised.layers, applied.quantised.adapters, repr(applied.without_effect(scenario, False)))
    print([(name, one.numel()) for name, one in model.named_buffers()])
    print([name for name, one in model.named_parameters() if one in optimizer.state])
"""
STORED = {"nf4": "[('1.stored', 5320), ('2.stored', 5320)]", "int8": "[('1.stored', 8704), ('2.stored', 8448)]"}
ADAPTERS = ["1.lora_A", "1.lora_B", "2.lora_A", "2.lora_B"]


@pytest.mark.parametrize("kind", STORED)
def test_adapters_stand_for_weights_that_cannot_be_trained(kind: str) -> None:
    """Where the script trains all: of each layer but the last, with all else frozen; the optimizer trains them."""
    lines = run_with_torch(MODEL % kind + 'model.to("mps")\ntrain(model.parameters())').lines
    assert lines == ["2 2 ''", STORED[kind], str(ADAPTERS)]


def test_what_the_script_trains_beside_frozen_layers_stays() -> None:
    """Norms and the last layer here: nothing is assumed; it is frozen before it moves or later."""
    freeze = "\nfor layer in model[:3]: layer.requires_grad_(False)\n"
    move, run = 'model.to("mps", torch.bfloat16)', "train(one for one in model.parameters() if one.requires_grad)"
    trained = str(["3.weight", "3.bias", "4.weight", "4.bias"])
    for text in (freeze + move + "\n" + run, move + freeze + run):
        assert run_with_torch(MODEL % "nf4" + text).lines == ["2 0 ''", STORED["nf4"], trained]


def test_a_layer_that_is_trained_beside_frozen_ones_keeps_its_weight() -> None:
    """It has its memory again, whatever it was taken for when the model moved."""
    text = 'model.to("mps").to(torch.bfloat16)\nmodel[1].requires_grad_(False)\ntrain(model[2].parameters())'
    text += "\nprint(type(model[1]).__name__, type(model[2]).__name__, model[2].weight.untyped_storage().nbytes())"
    lines = run_with_torch(MODEL % "nf4" + text).lines
    assert lines == ["1 0 ''", "[('1.stored', 5320)]", "['2.weight', '2.bias']", f"Quantised Conv1D {2 * 64 * 128}"]


def test_a_layer_that_is_trained_from_the_start_is_not_quantised() -> None:
    """Of a model that has frozen ones when it moves."""
    text = 'model[2].requires_grad_(False)\nmodel.to("mps")\nprint([type(layer).__name__ for layer in model[1:3]])'
    assert run_with_torch(MODEL % "nf4" + text).lines == ["['Linear', 'Quantised']"]


def test_models_that_do_not_move_are_not_quantised() -> None:
    """Layers made on mps; and none is quantised for a move to the CPU."""
    text = 'model.to("cpu")\nmodel = nn.Sequential(nn.Embedding(100, 8, device="mps"), nn.Linear(8, 8, device="mps"))'
    why = "no linear layers, but the last, move to mps by .to(), where bitsandbytes would quantise them"
    assert run_with_torch(MODEL % "nf4" + text + "\ntrain(model.parameters())").lines[0] == f"0 0 '{why}'"

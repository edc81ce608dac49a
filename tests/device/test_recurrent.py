"""RNN, LSTM and GRU: layers, directions, dropout, projections, packed sequences and cells equal the CPU's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from device.compare import same, same_gradients, same_module, text_of, values

pytestmark = pytest.mark.usefixtures("mps_device")

KINDS = [nn.RNN, nn.LSTM, nn.GRU]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True},
        {"num_layers": 2},
        {"bidirectional": True},
        {"bias": False},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
    ],
    ids=str,
)
def test_layers_equal_those_of_the_cpu(kind: type[nn.RNNBase], options: dict[str, Any]) -> None:
    """Outputs, last states and all gradients agree."""
    torch.manual_seed(0)
    same_module(kind(4, 5, **options), values(3, 2, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_given_states_and_unbatched_inputs(kind: type[nn.RNNBase]) -> None:
    """Initial states are used and get gradients; inputs without a batch pass."""
    torch.manual_seed(0)
    state: Any = values(1, 2, 5)
    same_module(kind(4, 5), values(3, 2, 4), (state, values(1, 2, 5, seed=1)) if kind is nn.LSTM else state)
    same_module(kind(4, 5), values(3, 4))


@pytest.mark.parametrize("kind", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_cells(kind: type[nn.RNNCellBase]) -> None:
    """Cells agree, with and without a state and a bias."""
    torch.manual_seed(0)
    same_module(kind(4, 5), values(3, 4))
    same_module(kind(4, 5, bias=False), values(3, 4))
    state: Any = values(3, 5)
    same_module(kind(4, 5), values(3, 4), (state, values(3, 5, seed=1)) if kind is nn.LSTMCell else state)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences(kind: type[nn.RNNBase]) -> None:
    """Sequences of different lengths, packed with lengths on the CPU, agree."""
    torch.manual_seed(0)

    def run(module: nn.RNNBase, x: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, torch.tensor([2, 4, 1]), batch_first=True, enforce_sorted=False)
        out, state = module(packed)
        padded, lengths = pad_packed_sequence(out, batch_first=True)
        assert [2, 4, 1] == lengths.tolist()
        return padded, state

    same_gradients(run, kind(3, 4, batch_first=True), values(3, 4, 3))


def test_a_state_on_the_cpu_is_refused() -> None:
    """A hidden state that was left on the CPU raises an error that names the devices."""
    module = nn.GRU(3, 4, device="mps")
    text = text_of(RuntimeError, module, values(2, 1, 3).to("mps"), values(1, 1, 4))
    assert (
        text
        == "Input and hidden tensors are not at the same device, found input tensor at mps:0 and hidden tensor at cpu"
    )


def test_wrong_shapes_are_refused_as_on_the_cpu() -> None:
    """Wrong input sizes raise torch's text."""
    same(lambda m, x: m(x), nn.LSTM(3, 4), values(2, 1, 5))
    same(lambda m, x: m(x), nn.GRU(3, 4), values(2, 1, 5))

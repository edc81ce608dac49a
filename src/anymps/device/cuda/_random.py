"""`torch.cuda`: the random numbers of mps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from anymps.device.cuda._names import index_of


def manual_seed(seed: int) -> None:
    torch.mps.manual_seed(int(seed))


def seed() -> None:
    torch.mps.seed()


manual_seed_all, seed_all = manual_seed, seed


def initial_seed() -> int:
    return torch.mps._get_default_mps_generator().initial_seed()


def get_rng_state(device: Any = None) -> torch.Tensor:
    """44 bytes, where CUDA has 16: a state that a checkpoint took from CUDA is none for mps."""
    index_of(device)
    return torch.mps.get_rng_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    index_of(device)
    torch.mps.set_rng_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)

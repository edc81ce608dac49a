"""Connectionist temporal classification, of torch 2.15.

Source: `LossOps.mm` of the pytorch tree's `aten/src/ATen/native/mps/operations/` (ctc_loss_mps, ctc_loss_backward_mps),
at a state with the arguments that the kernels of torch 2.15's wheel describe. A group of threads has one sequence.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from anymps.kernels.launches._call import Describe, KernelCall, Launch, Work, empty
from anymps.kernels.launches._elements import MOST_32, NAMES

_MOST = 1024


class _Sequences:
    """What both directions tell the kernels of a batch."""

    def __init__(self, call: KernelCall) -> None:
        self.log_probs, self.targets = call.given["log_probs"], call.given["targets"]
        self.lengths = call.given["input_lengths"], call.given["target_lengths"]
        self.time, self.batch, self.labels = self.log_probs.shape
        self.step = self.targets.stride(-1)
        if self.targets.dim() == 1:
            offsets = [0, *itertools.accumulate(self.lengths[1])][:-1]
        else:
            offsets = [at * self.targets.stride(0) for at in range(self.batch)]
        self.offsets = offsets

    def buffers(self, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        """Targets and three numbers of each sequence."""
        return (
            self.log_probs,
            self.targets,
            *(torch.tensor(one, dtype=dtype, device="cpu") for one in (*self.lengths, self.offsets)),
        )

    def params(self, blank: int, longest: int) -> dict[str, Any]:
        """Of all three kernels."""
        time, batch, token = self.log_probs.stride()
        return {
            "BLANK": blank,
            "max_input_length": self.time,
            "max_target_length": longest,
            "tg_target_stride": self.step,
            "log_probs_time_stride": time,
            "log_probs_batch_stride": batch,
            "log_probs_token_stride": token,
        }


def _sequences(call: KernelCall) -> _Sequences | None:
    lengths = call.given["input_lengths"], call.given["target_lengths"]
    log_probs, targets = call.given["log_probs"], call.given["targets"]
    if call.foreign or call.written or not all(isinstance(one, (list, tuple)) for one in lengths):
        return None
    if log_probs.dim() != 3 or not log_probs.numel() or targets.dtype not in (torch.int32, torch.int64):
        return None
    known = log_probs.is_floating_point() and log_probs.dtype in NAMES
    return _Sequences(call) if known and len(lengths[0]) == len(lengths[1]) == log_probs.shape[1] else None


def _chances(given: _Sequences, call: KernelCall, log_chances: torch.Tensor) -> dict[str, Any]:
    batch, time, target = log_chances.stride()
    return {
        **given.params(call.given["blank"], log_chances.shape[2] // 2),
        "batch_size": given.batch,
        "log_alpha_batch_stride": batch,
        "log_alpha_time_stride": time,
        "log_alpha_target_stride": target,
    }


def _types(given: _Sequences, log_chances: torch.Tensor) -> tuple[str, torch.dtype]:
    """The end of the kernels' names, and the dtype of indices."""
    small = all(one.numel() <= MOST_32 for one in (given.log_probs, given.targets, log_chances))
    index = "int32_t" if small else "int64_t"
    return f"{NAMES[given.log_probs.dtype]}_{NAMES[given.targets.dtype]}_{index}", torch.int32 if small else torch.int64


def _forward(call: KernelCall) -> Work | None:
    given = _sequences(call)
    if given is None:
        return None
    dtype = given.log_probs.dtype
    loss = empty([given.batch], dtype)
    log_alpha = empty((given.batch, given.time, 2 * max(given.lengths[1]) + 1), dtype)
    types, index = _types(given, log_alpha)
    name = f"ctc_loss_{types}"
    threads = min(_MOST, log_alpha.shape[2])
    params = _chances(given, call, log_alpha)
    launch = Launch(name, (loss, log_alpha, *given.buffers(index), params), (given.batch * threads,), (threads,))
    return Work((loss, log_alpha), (launch,))


def _backward(call: KernelCall) -> Work | None:
    given = _sequences(call)
    if given is None:
        return None
    gradient, loss, log_alpha = (call.given[name] for name in ("grad", "neg_log_likelihood", "log_alpha"))
    log_beta = empty(log_alpha.shape, log_alpha.dtype)
    out = torch.full(given.log_probs.shape, -math.inf, dtype=log_alpha.dtype, device="cpu")
    types, index = _types(given, log_alpha)
    names = [f"ctc_loss_backward_{which}_{types}" for which in ("log_beta", "collect")]
    if gradient.dim() != 1 or any(one.dtype != out.dtype for one in (gradient, loss, log_alpha)):
        return None
    if not log_alpha.is_contiguous():
        return None
    buffers = given.buffers(index)
    threads = min(_MOST, log_alpha.shape[2])
    chances = Launch(
        names[0],
        (log_beta, *buffers, _chances(given, call, log_beta)),
        (given.batch * threads,),
        (threads,),
    )
    batch, time, target = log_alpha.stride()
    params = {
        **given.params(call.given["blank"], log_alpha.shape[2] // 2),
        "num_labels": given.labels,
        "log_alpha_beta_batch_stride": batch,
        "log_alpha_beta_time_stride": time,
        "log_alpha_beta_target_stride": target,
        "grad_time_stride": out.stride(0),
        "grad_batch_stride": out.stride(1),
        "grad_token_stride": out.stride(2),
        "grad_out_batch_stride": gradient.stride(0),
        "zero_infinity": call.given["zero_infinity"],
    }
    collect = Launch(
        names[1],
        (out, gradient, log_alpha, log_beta, *buffers[:4], loss, buffers[4], params),
        (given.time, given.batch),
        (min(_MOST, given.time), 1),
    )
    return Work((out,), (chances, collect))


CTC: dict[str, Describe] = {"_ctc_loss": _forward, "_ctc_loss_backward": _backward}

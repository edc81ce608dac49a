"""Advice for values that torch, a trainer or a metric reads, so that nothing on the user's line does."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from anymps.findings._costs import ITEM
from anymps.findings._loop import AtLine
from anymps.findings.advice._user_line import UserLine
from anymps.record import Phase
from anymps.source import LineEdit, without_comment


class Advice(NamedTuple):
    """What happened, and a fix and a source of its own; empty where the rule's own is best.

    `elsewhere`: the fix is no change of the line itself but a setting, which the user can make wherever the line lies.
    `edit` is what a person may make of the line, as it keeps a tensor in place of a number, or does less often what the
    line does; `written` is the fix that shows its code, as `{new}`.
    """

    what: str
    fix: str = ""
    source: str = ""
    elsewhere: bool = False
    edit: LineEdit | None = None
    written: str = ""


_METRICS: Final = re.compile(r"[/\\](torchmetrics|torcheval|ignite)[/\\]")
_TRAINER: Final = re.compile(r"[/\\]transformers[/\\]trainer\.py$")
_LIGHTNING: Final = re.compile(r"[/\\]lightning(?:_fabric|[/\\]fabric)[/\\]utilities[/\\]apply_func\.py$")


def in_torch(line: AtLine, vias: str) -> Advice | None:
    """Reads that a function of torch makes."""
    code = without_comment(line.site.source)
    if "torch/distributions/" in vias:
        return Advice(
            "A distribution checked whether its arguments are valid",
            "Once the values are known to be right, switch these checks off for all distributions: "
            "`torch.distributions.Distribution.set_default_validate_args(False)`.",
            "torch/distributions/distribution.py (torch 2.13); " + ITEM.source,
            elsewhere=True,
        )
    if "_detect_is_causal_mask" in vias:
        return Advice(
            "The layer compared its mask with a causal one",
            "Say which it is: `is_causal=True` for a causal mask, `is_causal=False` for another (`tgt_is_causal=`, "
            "`memory_is_causal=` of a decoder).",
            "torch/nn/modules/transformer.py (torch 2.13); " + ITEM.source,
        )
    if "clip_grad" in vias or re.search(r"error_if_nonfinite\s*=\s*True", code):
        return Advice(
            "clip_grad_norm_ checked whether the norm is finite",
            "Leave `error_if_nonfinite=True` out: the norm then stays on the device. Test it every 10 steps.",
            "torch/nn/utils/clip_grad.py (torch 2.13); " + ITEM.source,
        )
    if "optim/lbfgs" in vias:
        return Advice(
            "LBFGS read its loss and its directions back",
            "LBFGS decides on the host in each iteration. An optimizer that does not, such as AdamW, needs no wait.",
            "torch/optim/lbfgs.py (torch 2.13); " + ITEM.source,
            elsewhere=True,
        )
    if "optim/lr_scheduler" in vias:
        return Advice(
            "The learning rate's scheduler read its metric",
            "Step it once an epoch, with the epoch's mean: `scheduler.step(total / steps)`. Its `patience` then counts "
            "epochs.",
            "torch/optim/lr_scheduler.py (torch 2.13); " + ITEM.source,
        )
    if line.phases == (Phase.OPTIMIZER,):
        return Advice(
            "The optimizer read a value back",
            "Use the fused optimizer: `AdamW(..., fused=True)`, with the learning rate as a Python number.",
            "scvi-tools PR 3998 (17 of 22 waits of a step were an unfused Adam's); " + ITEM.source,
            elsewhere=True,
        )
    product = UserLine.at(line.site).product
    if line.phases == (Phase.BACKWARD,) and product:
        instead = "x.log().cumsum(dim).exp()" if product == "cumprod" else "x.log().sum(dim).exp()"
        return Advice(
            f"The backward of `{product}` looked for zeros",
            f"If all values are above 0, write `{instead}`: its backward reads nothing.",
            "torch/csrc/autograd/FunctionsManual.cpp (prod_backward, cumprod_backward), torch 2.13; " + ITEM.source,
        )
    if re.search(r"\bone_hot\(", code) and not re.search(r"num_classes|\bone_hot\([^()]*,", code):
        return Advice(
            "`one_hot` read the largest class",
            "Pass `num_classes=`: the result's size is then known without a read.",
            "aten/src/ATen/native/Onehot.cpp (torch 2.13); " + ITEM.source,
        )
    return None


def in_library(line: AtLine) -> Advice | None:
    if _TRAINER.search(line.site.file) and re.match(r"if \(?$|.*\bisnan\(", line.site.source.strip()):
        return Advice(
            "The Trainer checked whether the loss is finite",
            "Use `TrainingArguments(..., logging_nan_inf_filter=False)`; a NaN loss then shows in the log.",
            "transformers/trainer.py (transformers 4.46 to 5.23); " + ITEM.source,
            elsewhere=True,
        )
    if _LIGHTNING.search(line.site.file):
        return Advice(
            "Lightning read a value that was logged",
            "Leave `prog_bar=True` out of `self.log(...)`: such a value is read after every batch, however rarely the "
            "bar is drawn.",
            "lightning/pytorch/trainer/connectors/logger_connector/result.py (lightning 2.6); " + ITEM.source,
            elsewhere=True,
        )
    found = _METRICS.search(line.site.file)
    if found is None:
        return None
    library = found[1]
    checks = ", and leave out its checks of the values: `validate_args=False`" if library == "torchmetrics" else ""
    return Advice(
        f"A metric of {library} read a value",
        f"Update the metric on the device, and compute it once an epoch{checks}.",
        elsewhere=True,
    )

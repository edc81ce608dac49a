"""CUDA answered by mps: `torch.cuda`, `.cuda()` and "cuda", for scripts that were written for another GPU.

It works by the means of Python on a virtual and on a Mac's own device alike. Names of devices are changed where torch
reads them, so a tensor tells the truth: it is on `mps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face

if TYPE_CHECKING:
    from anymps.device.cuda._alone import run_alone
    from anymps.device.cuda._install import answer_cuda, answers, stop_answering
    from anymps.device.cuda._refused import REFUSED, REFUSED_MODULES
    from anymps.device.cuda._uses import on_use

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)

"""Torch's own database of operators (OpInfo), which a torch from the package registry has too."""

from __future__ import annotations

import functools
import importlib.util
import random
import sys
import types
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

_WANTED: Final = "expecttest"


@functools.cache
def database() -> dict[tuple[str, str], Any]:
    """Torch's own entries by name and variant; before each sample that they draw they call `seed_generators`.

    Raises ModuleNotFoundError where a module that it needs is not installed, such as numpy.
    """
    with _stand_in():
        from torch.testing._internal import common_utils
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.opinfo import core
    common_utils.set_rng_seed = seed_generators
    for module in (common_utils, core):
        vars(module)["extract_test_fn"] = lambda: None  # torch's own looks through the stack for a test
    return {(info.name, info.variant_test_name): info for info in op_db}


def seed_generators(seed: int | None = None) -> None:
    """Seed what samples and calls draw from; torch's own function keeps a traceback for each absent device."""
    import numpy
    from torch.testing._internal import common_utils

    seed = common_utils.SEED if seed is None else seed
    torch.default_generator.manual_seed(seed)
    torch.mps.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


@contextmanager
def _stand_in() -> Iterator[None]:
    """Lets `torch.testing._internal` be imported without expecttest, of which the database uses nothing.

    Its module of helpers derives a class of tests from `expecttest.TestCase`: any other class of tests will do.
    """
    if _WANTED in sys.modules or importlib.util.find_spec(_WANTED) is not None:
        yield
        return
    module: Any = types.ModuleType(_WANTED)
    module.TestCase = unittest.TestCase
    sys.modules[_WANTED] = module
    try:
        yield
    finally:
        del sys.modules[_WANTED]

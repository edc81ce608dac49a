"""Torch's own database of operators (OpInfo), which a torch from the package registry has too."""

from __future__ import annotations

import functools
import importlib
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
    """Torch's own entries by name and variant.

    Raises ModuleNotFoundError where a module that it needs is not installed, such as numpy.
    """
    with _stand_in():
        from torch.testing._internal.common_methods_invocations import op_db
    return {(info.name, info.variant_test_name): info for info in op_db}


@contextmanager
def drawing_quickly() -> Iterator[None]:
    """Lets the database draw its samples, the same ones, in less than half the time.

    Before each sample it seeds torch, which notes a traceback for each kind of device that is not there, and looks
    through the stack for the test that runs.
    """
    database()
    utilities, core = _module("common_utils"), _module("opinfo.core")
    seed, tests = utilities.set_rng_seed, utilities.extract_test_fn
    try:
        utilities.set_rng_seed = _seed
        utilities.extract_test_fn = core.extract_test_fn = lambda: None
        yield
    finally:
        utilities.set_rng_seed = seed
        utilities.extract_test_fn = core.extract_test_fn = tests


def _seed(seed: int | None = None) -> None:
    """The generators that samples and calls draw from."""
    utilities = _module("common_utils")
    seed = utilities.SEED if seed is None else seed
    torch.default_generator.manual_seed(seed)
    torch.mps.manual_seed(seed)
    random.seed(seed)
    if utilities.TEST_NUMPY:
        utilities.np.random.seed(seed)


def _module(name: str) -> Any:
    return importlib.import_module(f"torch.testing._internal.{name}")


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

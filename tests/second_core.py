"""Recording as on a Mac: by a copy of the native library that does not own the device which it records."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

from anymps.capture import _run_facts
from anymps.device import _enable, native
from anymps.device._rule_tables import rule_tables
from anymps.rules import check_supported
from anymps.rules.faults import elsewhere, hazard_table


@cache
def second_core() -> ModuleType:
    """The native library, loaded once more and told the rules: the virtual device belongs to the first one."""
    assert native().__file__ is not None
    path = Path(tempfile.mkdtemp()) / Path(native().__file__).name
    shutil.copy(native().__file__, path)
    spec = importlib.util.spec_from_file_location("second._native", path)
    assert spec is not None and spec.loader is not None
    core = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(core)
    core.configure(rule_tables(check_supported(torch.__version__)))
    known = _enable.known_hazards()
    core.set_hazards(hazard_table((*known, *elsewhere(known))))
    # The virtual device looks into its buffers; a Mac's goes by their addresses.
    native().recognise_owners(core.owners())
    return core


@contextmanager
def as_on_a_mac() -> Iterator[None]:
    """Within this, the second core records what an observer sees, and a backward has the engine's own thread."""
    former, engine = _run_facts.native, torch.autograd.Variable._execution_engine
    _run_facts.native = second_core
    torch.autograd.Variable._execution_engine = type(engine).__base__()
    try:
        yield
    finally:
        _run_facts.native, torch.autograd.Variable._execution_engine = former, engine

"""The public face loads its names when they are asked for, and `anymps.record` is always the function."""

from __future__ import annotations

import pytest

import anymps
from processes import run_python


def test_importing_loads_nothing() -> None:
    """`import anymps` loads its errors, its version and the loader alone; a name loads what it needs."""
    result = run_python("""
        import sys, anymps
        print(sorted(name for name in sys.modules if name.split(".")[0] == "anymps"))
        print(anymps.parse_mac("M1 8GB").name, "anymps.mac" in sys.modules, "anymps.device" in sys.modules)
    """)
    assert result.lines == ["['anymps', 'anymps._errors', 'anymps._lazy', 'anymps._version']", "M1 8GB True False"]


def test_every_name_is_there() -> None:
    """Each name of `__all__` can be had and listed; another is an AttributeError."""
    assert all(hasattr(anymps, name) for name in anymps.__all__)
    assert set(anymps.__all__) <= set(dir(anymps))
    with pytest.raises(AttributeError, match="module 'anymps' has no attribute 'nothing'"):
        anymps.nothing  # noqa: B018


def test_record_is_the_function() -> None:
    """Also after the package of the same name was imported, before or after the first use."""
    result = run_python("""
        from anymps.record import Recording
        import anymps
        print(callable(anymps.record), anymps.Recording is Recording)
        import anymps.record._rows
        print(anymps.record.__name__, anymps.record.__module__)
    """)
    assert result.lines == ["True True", "record anymps.capture._start"]

"""The surface: torch.backends.mps, torch.mps, torch._C._mps_*, and what torch.mps does not have."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch

from device.compare import text_of
from processes import run_with_torch

pytestmark = pytest.mark.usefixtures("mps_device")

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


def test_backends_mps() -> None:
    """is_built and is_available say yes; name and cores are those of the Mac."""
    mps = torch.backends.mps
    assert mps.is_built()
    assert mps.is_available()
    assert mps.is_macos13_or_newer()
    assert mps.get_name().startswith("Apple M")
    assert mps.get_core_count() >= 7
    assert torch._C._has_mps
    assert torch.backends.mps.is_available() is True


def test_the_played_mac(virtual_device: torch.device) -> None:
    """The virtual device answers for the Mac that was asked for."""
    assert torch.backends.mps.get_name() == "Apple M3 Pro"
    assert torch.backends.mps.get_core_count() in (14, 18)
    assert torch.backends.mps.is_macos_or_newer(26, 0)


@pytest.mark.parametrize(
    ("major", "minor", "text"),
    [
        *((13, 0, ""), (13, 3, ""), (14, 0, ""), (14, 4, ""), (15, 0, ""), (15, 1, ""), (26, 0, "")),
        (14, 2, "Can't check whether running on 14.2+ returning one for 14.4+"),
        (15, 9, "Can't check whether running on 15.9+ returning one for 15.1+"),
        (26, 9, "Can't check whether running on 26.9+ returning one for 26.0+"),
        (12, 0, "Checking for unexpected MacOS 12.0 returning false"),
    ],
)
def test_is_macos_or_newer_warns_where_it_does_not_know(major: int, minor: int, text: str) -> None:
    """Minors and majors that the release does not check are rounded, with the backend's warning."""
    if RELEASE >= (2, 15):  # it runs on no macOS 14, and asks for macOS 26.4
        text = "" if major == 14 else text.replace("26.0+", "26.4+")
    torch.backends.mps.is_macos_or_newer.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = torch.backends.mps.is_macos_or_newer(major, minor)
    assert [str(warning.message).split(" (Triggered")[0] for warning in caught] == ([text] if text else [])
    if "returning false" in text:
        assert answer is False
    if major == 13:
        assert answer is True


def test_torch_mps_has_what_the_release_has() -> None:
    """Every public name of torch.mps can be called or used; device_count is 1; synchronize returns None."""
    mps = torch.mps
    assert 1 == mps.device_count()
    assert mps.is_available()
    assert mps.synchronize() is None
    assert mps.empty_cache() is None
    for name in mps.__all__:
        assert callable(getattr(mps, name)) or inspect.ismodule(getattr(mps, name))
    assert isinstance(mps.current_allocated_memory(), int)
    assert isinstance(mps.driver_allocated_memory(), int)
    assert isinstance(mps.recommended_max_memory(), int)


@pytest.mark.parametrize(
    "name",
    [
        "current_device", "set_device", "memory_allocated", "max_memory_allocated", "memory_stats", "is_initialized",
        "get_device_properties", "manual_seed_all", "is_bf16_supported",
    ],
)  # fmt: skip
def test_torch_mps_lacks_what_cuda_has(name: str) -> None:
    """Code written for torch.cuda meets an AttributeError, as on a Mac."""
    assert text_of(AttributeError, getattr, torch.mps, name) == f"module 'torch.mps' has no attribute '{name}'"


BINDINGS = {
    (2, 11): """
        _mps_is_in_bad_fork _mps_is_available _mps_is_on_macos_or_newer _mps_get_default_generator
        _mps_deviceSynchronize _mps_emptyCache _mps_setMemoryFraction _mps_currentAllocatedMemory
        _mps_driverAllocatedMemory _mps_recommendedMaxMemory _mps_profilerStartTrace _mps_profilerStopTrace
        _mps_acquireEvent _mps_releaseEvent _mps_recordEvent _mps_waitForEvent _mps_synchronizeEvent _mps_queryEvent
        _mps_elapsedTimeOfEvents _mps_compileShader _mps_isCaptureEnabled _mps_isCapturing _mps_startCapture
        _mps_stopCapture _mps_get_name _mps_get_core_count
    """,
    (2, 13): "_mps_maxBufferLength _mps_host_alias_storage _mps_loadMetalllib _mps_loadMetallibFromPath",
    (2, 14): "_mps_setStream _MPSStreamBase",
    (2, 15): "_mps_getCurrentStream _mps_allocator_waitForEvents",
}


@pytest.mark.parametrize(
    "name", [name for since, names in BINDINGS.items() if since <= RELEASE for name in names.split()]
)
def test_bindings_exist(name: str) -> None:
    """Every binding of the macOS build of this release is there and callable."""
    assert callable(getattr(torch._C, name))


def test_what_the_bindings_answer() -> None:
    """The bindings answer with the types of the macOS build and refuse wrong ones in its words."""
    c = torch._C
    assert c._mps_is_available() is True
    assert c._mps_is_in_bad_fork() is False
    assert c._mps_is_on_macos_or_newer(14, 0) is True
    generator = c._mps_get_default_generator()
    assert isinstance(generator, torch.Generator)
    assert torch.device("mps:0") == generator.device
    assert c._mps_deviceSynchronize() is None
    assert c._mps_emptyCache() is None
    assert RELEASE < (2, 13) or c._mps_maxBufferLength() > 2**30
    assert text_of(RuntimeError, c._mps_setMemoryFraction, "1") == "invalid argument to setMemoryFraction()"
    text = text_of(RuntimeError, c._mps_profilerStartTrace, "event", 3)
    assert text == "couldn't convert python object to boolean"


def test_before_enable_nothing_has_changed(virtual_device: torch.device) -> None:
    """Importing anymps alone leaves torch as it is: no mps, torch's own refusals; enabling changes all answers."""
    lines = run_with_torch(
        """
import anymps, torch
print(torch.backends.mps.is_available(), torch.backends.mps.is_built(), anymps.is_virtual())
try:
    torch.mps.synchronize()
except RuntimeError as error:
    print(str(error).splitlines()[0])
accelerator = torch.accelerator.current_accelerator()  # an NVIDIA GPU, where there is one
print(torch.mps.device_count(), accelerator is not None and accelerator.type == "mps")
anymps.enable("M1")
print(torch.backends.mps.is_available(), torch.backends.mps.is_built(), anymps.is_virtual())
print(torch.mps.device_count(), torch.accelerator.current_accelerator(), torch.backends.mps.get_name())
"""
    ).lines
    assert lines == [
        "False False False",
        "Cannot execute deviceSynchronize() without MPS backend.",
        "0 False",
        "True True True",
        "1 mps Apple M1",
    ]


@pytest.mark.usefixtures("virtual_device")
@pytest.mark.skipif(RELEASE < (2, 13), reason="torch 2.13 has load_metallib")
def test_compiled_libraries_are_refused_in_our_own_words() -> None:
    """Shaders run from their source alone."""
    with pytest.raises(RuntimeError) as error:
        torch.mps.load_metallib(b"MTLB")
    assert str(error.value) == (
        "anymps: the virtual mps device loads no compiled Metal libraries; "
        "give the source to torch.mps.compile_shader, or use a real Mac"
    )

"""The real backend's words about memory, events, profiling, bindings and operator limits, by torch version.

Source, unless a function says otherwise: the C strings of `libtorch_cpu.dylib` and `libtorch_python.dylib`, and the
Python files, of the macOS arm64 wheels of torch 2.11 to 2.15. Sizes are in bytes.
"""

from __future__ import annotations

from typing import Final

from anymps.rules._readings import Reading
from anymps.rules._versions import TorchVersion, check_supported, version_rules
from anymps.rules.texts._calls import BackendText

READING: Final = Reading(
    "texts.runtime",
    "C strings of libtorch_cpu.dylib and libtorch_python.dylib, and the Python files, of the macOS arm64 wheels",
    (2, 11),
    (2, 15),
)

# --- memory: MPSAllocator.mm, c10/core/CachingAllocator format_size, torch/mps/__init__.py


def format_size(size: int) -> str:
    """A size as the allocator prints it: `512 bytes`, `1.50 MiB`; a unit begins one byte above its power of two."""
    for unit, scale in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size > scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} bytes"


def invalid_buffer(size: int) -> BackendText:
    """A request of `maxBufferLength` bytes or more."""
    return BackendText("RuntimeError", f"Invalid buffer size: {format_size(size)}")


def out_of_memory(
    version: str | TorchVersion, *, allocated: int, other: int, requested: int, limit: int | None, private: bool = False
) -> BackendText:
    """Out of memory, a plain RuntimeError in every version.

    `allocated` is the sum of the heaps, not of the tensors; `other` what Metal holds besides; `requested` the aligned
    size; `limit` the high watermark, None without one. `private` names the pool up to torch 2.11; later all are shared.
    """
    pool = "private" if private and not version_rules(version).shared_pool_only else "shared"
    allowed = f", max allowed: {format_size(limit)}" if limit is not None else ""
    advice = (
        " Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations "
        "(may cause system failure)."
        if limit is not None
        else ""
    )
    return BackendText(
        "RuntimeError",
        f"MPS backend out of memory (MPS allocated: {format_size(allocated)}, other allocations: {format_size(other)}"
        f"{allowed}). Tried to allocate {format_size(requested)} on {pool} pool.{advice}",
    )


def watermark_error(high: float, low: float) -> BackendText | None:
    """What the allocator's constructor says about the two watermark ratios; None if both are valid.

    High: 0 to 2. Low: 0 to high, or to 2 if high is 0. The ratio is printed as C++ streams print a double (`1.4`, `2`).
    """
    if not 0 <= high <= 2:
        return BackendText("RuntimeError", f"invalid high watermark ratio {high:g}")
    if not 0 <= low <= (high if high > 0 else 2):
        return BackendText("RuntimeError", f"invalid low watermark ratio {low:g}")
    return None


def memory_fraction_error(fraction: object) -> BackendText | None:
    """What `torch.mps.set_per_process_memory_fraction(fraction)` says; None if it accepts (a float from 0 to 2)."""
    if not isinstance(fraction, float):
        return BackendText("TypeError", "Invalid type for fraction argument, must be `float`")
    if fraction < 0 or fraction > 2:
        return BackendText("ValueError", f"Invalid fraction value: {fraction}. Allowed range: 0~2")
    return None


# --- system: MPSHooks.mm, torch/backends/mps/__init__.py


def macos_too_old(version: str | TorchVersion) -> BackendText:
    """First use of mps on a macOS that is too old."""
    release = check_supported(version).release
    if release == (2, 11):
        return BackendText(
            "RuntimeError",
            "The MPS backend is supported on MacOS 14.0+. Current OS version can be queried using `sw_vers`",
        )
    oldest = version_rules(version).oldest_macos
    return BackendText(
        "RuntimeError",
        f"The MPS backend is supported on macOS {oldest}.0+. Current OS version can be queried using `sw_vers`",
    )


def is_macos_or_newer_warning(version: str | TorchVersion, major: int, minor: int) -> BackendText | None:
    """The warning of `torch.backends.mps.is_macos_or_newer(major, minor)`; None if it answers without one.

    Minors that are really checked: 14.0 and 14.4, 15.0 to 15.2 (15.2 not verified), 26.0, and in 2.15 26.4. Others
    are rounded to a checked one; other majors answer False. A major below the oldest macOS (13, in 2.15 also 14, whose
    texts are gone) answers True.
    """
    rules = version_rules(version)
    newest_26 = rules.newest_minor_of_macos_26
    checked = {14: (0, 4), 15: (0, 1, 2), 26: (0, newest_26)}
    if major == 13 or (major == 14 and rules.oldest_macos > 14):
        return None
    if major not in checked:
        return BackendText("UserWarning", f"Checking for unexpected MacOS {major}.{minor} returning false")
    if minor in checked[major]:
        return None
    nearest = {14: 4, 15: 1, 26: newest_26}[major]
    return BackendText(
        "UserWarning",
        f"Can't check whether running on {major}.{minor}+ returning one for {major}.{nearest}+",
    )


# --- streams, events, errors of the device: MPSEvent.mm, MPSGuardImpl.mm, MPSStream.mm


def events_without_timing() -> BackendText:
    """`elapsed_time` of events that were not created with `enable_timing=True`."""
    return BackendText("RuntimeError", "Events were not created with argument 'enable_timing=True'")


def events_in_wrong_order(start: int, end: int) -> BackendText:
    """`elapsed_time` of an end event that was recorded before its start event; the numbers are event ids."""
    return BackendText("RuntimeError", f"End event {end} was not recorded after start event {start}")


def invalid_event(event: int) -> BackendText:
    """An event id that is not in use."""
    return BackendText("RuntimeError", f"Invalid Event ID: {event}")


def events_not_recorded(version: str | TorchVersion, *, generic: bool = False) -> BackendText | None:
    """`elapsed_time` of unrecorded events: of `torch.Event` (`generic`) always, of `torch.mps.Event` from torch 2.15.

    None: `torch.mps.Event` up to 2.14, which waits for ever (pytorch issue 162872).
    """
    if generic:
        return BackendText("ValueError", "Both events must be recorded before calculating elapsed time.")
    if not version_rules(version).event_timing_safe:
        return None
    return BackendText("RuntimeError", "Both events must be recorded before calculating elapsed time")


def event_on_other_stream() -> BackendText:
    """`record` or `wait` while a stream other than the default one is current, torch 2.15."""
    return BackendText("NotImplementedError", "Non-default streams are not yet supported.")


# --- profiler: MPSProfiler.mm


def profiler_mode(token: str) -> BackendText:
    """`torch.mps.profiler.start(mode=...)` with a token other than `interval` and `event`."""
    return BackendText("RuntimeError", f"Invalid Signpost trace mode: {token}")


def profiler_running() -> BackendText:
    """`start` while a trace runs; the blank at the end is real."""
    return BackendText("RuntimeError", "Tracing Signposts is already enabled ")


def capture_failed(file: str, metal_text: str) -> BackendText:
    """`torch.mps.profiler.metal_capture` that Metal refuses."""
    return BackendText("RuntimeError", f"Failed to start capture of {file} error {metal_text}")


# --- bindings, generators, serialization: torch/csrc/mps/Module.cpp, MPSGeneratorImpl.mm


def without_mps(hook: str) -> BackendText:
    """A hook of a torch without MPS."""
    return BackendText("RuntimeError", f"Cannot execute {hook}() without MPS backend.")


def binding_argument(binding: str) -> BackendText:
    """A binding called with a wrong type: `setMemoryFraction`, `setStream` (2.14), or `boolean`."""
    texts = {
        "boolean": "couldn't convert python object to boolean",
        "setMemoryFraction": "invalid argument to setMemoryFraction()",
        "setStream": "invalid stream argument to setStream",
    }
    return BackendText("RuntimeError", texts[binding])


def shared_memory(strategy: str) -> BackendText:
    """An mps tensor sent to another process, with strategy `file_system` or `file_descriptor`."""
    call = "_share_filename_" if strategy == "file_system" else "_share_fd_"
    return BackendText("RuntimeError", f"{call}: only available on CPU")


def loader_pin_memory_warning() -> BackendText:
    """`DataLoader(pin_memory=True)` where mps is the accelerator (torch/utils/data/dataloader.py)."""
    return BackendText(
        "UserWarning",
        "'pin_memory' argument is set as true but not supported on MPS now, device pinned memory won't be used.",
    )


def autocast_dtype_warning() -> BackendText:
    """`torch.autocast("mps", dtype=...)` with a type other than float16 and bfloat16 (torch/amp/autocast_mode.py)."""
    return BackendText(
        "UserWarning",
        "In MPS autocast, but the target dtype is not supported. Disabling autocast.\n"
        "MPS Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
    )

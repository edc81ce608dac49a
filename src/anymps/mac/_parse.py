"""Parses the name of a Mac as people write it: `M3 Pro 18GB`, `MacBook Pro M3 Max 40-core 64GB, macOS 15.4`, `m1`."""

from __future__ import annotations

import re
from typing import Final

from anymps._errors import MacError
from anymps._numbers import digits
from anymps.mac._chips import Chip, chip_table
from anymps.mac._mac import DEFAULT_MACOS, Mac, build_mac

_CHIP: Final = re.compile(r"\b(?:apple\s*)?([ma]\d+)(?:\s*(pro|max|ultra)(?![a-z])|(?![a-z0-9]))")
_MEMORY: Final = re.compile(r"\b(\d+)\s*-?\s*(?:gib|gb|g)\b")
_CPU_CORES: Final = re.compile(r"\b(\d+)\s*-?\s*cores?\s*cpu\b")
_CORES: Final = re.compile(r"\b(\d+)\s*-?\s*cores?\b(?:\s*gpu\b)?")
_MACOS: Final = re.compile(r"\bmac\s*os\s*(?:x\s*)?(?:(sonoma|sequoia|tahoe)\s*)?(\d+)?(?:\.(\d+))?(?:\.\d+)?")
_MACOS_NAME: Final = re.compile(r"\b(sonoma|sequoia|tahoe)\b")
_WIRED: Final = re.compile(r"\b(?:iogpu\.)?wired[_ ]limit(?:[_ ]mb)?\s*[=:]?\s*(\d+)\s*(?:mb|mib)?\b")
_IGNORED: Final = re.compile(
    r"\b(?:macbook|mac\s*mini|mac\s*studio|mac\s*pro|imac|mac|air|neo|pro|mini|studio|chip|with|and|of|unified|memory"
    r"|ram|gpu|cpu|apple|a|an|the|\d+(?:\.\d+)?\s*-?\s*(?:inch|in)|20[12]\d)\b|\d+(?:\.\d+)?\s*[\"”]|[,;:()/+-]"
)
_RELEASE_NAMES: Final = {"sonoma": 14, "sequoia": 15, "tahoe": 26}


def parse_mac(text: str, *, wired_limit_mb: int = 0) -> Mac:
    """The Mac that `text` names. Case, spaces, commas and model names (`MacBook Pro`, `Mac mini`) do not matter.

    What the text leaves out is filled in. The default memory size is the smallest that the chip (or the named variant)
    was sold with; the default number of cores is the highest that was sold with that memory; the default macOS is
    `DEFAULT_MACOS`, and `macOS 15` means 15.0. `N-core` counts GPU cores, or CPU cores if no variant has N GPU cores.
    `wired_limit_mb=N`, in the text or as an argument, is the sysctl `iogpu.wired_limit_mb` in MiB.

    Raises MacError, in one line, if a word is unknown or there is no such Mac; it names the nearest ones.
    """
    rest = " ".join(text.lower().replace("\u2011", "-").split())
    wired, rest = _take(_WIRED, rest)
    macos, rest = _macos(rest)
    if "macbook neo" in rest and not _CHIP.search(rest):
        rest = rest.replace("macbook neo", "a18 pro")
    chip, rest = _take(_CHIP, rest)
    if chip is None:
        raise MacError(f'anymps: no chip in "{text.strip()}"; write "M2 8GB"')
    memory, rest = _take(_MEMORY, rest)
    cpu, rest = _take(_CPU_CORES, rest)
    gpu, rest = _take(_CORES, rest)
    left = " ".join(_IGNORED.sub(" ", rest).split())
    if left:
        right = f"{left}GB" if left.isdigit() and memory is None else "M3 Pro 18GB, macOS 15.4"
        raise MacError(f'anymps: unknown "{left}" in "{text.strip()}"; write "{right}"')
    name = " ".join(part.capitalize() for part in chip.groups() if part)
    bins = [candidate for candidate in chip_table().chips if candidate.name == f"Apple {name}"]
    if not bins:
        raise MacError(f'anymps: there is no Mac "{name}"; nearest: {_nearest_chips(name)}')
    ram = digits(memory[1]) if memory else None
    chosen, size = _choose(name, bins, ram, digits(gpu[1]) if gpu else None, digits(cpu[1]) if cpu else None)
    mac = build_mac(chosen, size, macos)
    limit = wired_limit_mb or (digits(wired[1]) if wired else 0)
    return mac.with_wired_limit(limit) if limit else mac


def parse_memory(text: str) -> int:
    """The bytes that `6GB` or `6 GiB` names. Raises MacError, in one line, for any other text."""
    size = _MEMORY.fullmatch(text.strip().lower())
    if size is None:
        raise MacError(f'anymps: "{text.strip()}" is no size of memory; write "6GB"')
    return digits(size[1]) << 30


def _take(pattern: re.Pattern[str], text: str) -> tuple[re.Match[str] | None, str]:
    """The first match of the pattern, and the text without it."""
    match = pattern.search(text)
    return (match, f"{text[: match.start()]} {text[match.end() :]}") if match else (None, text)


def _macos(text: str) -> tuple[tuple[int, int], str]:
    """The macOS that the text names, or the default, and the text without it."""
    match, rest = _take(_MACOS, text)
    if match and (match[1] or match[2]):
        major = digits(match[2]) if match[2] else _RELEASE_NAMES[match[1]]
        return (major, digits(match[3] or "0")), rest
    name, rest = _take(_MACOS_NAME, rest)
    return ((_RELEASE_NAMES[name[1]], 0), rest) if name else (DEFAULT_MACOS, rest)


def _choose(name: str, bins: list[Chip], ram: int | None, gpu: int | None, cpu: int | None) -> tuple[Chip, int]:
    """The bin and memory size for what was said; MacError if they were not sold together."""
    wanted = f"{name}{f' {gpu}-core' if gpu else ''}{f' {cpu}-core CPU' if cpu else ''}{f' {ram}GB' if ram else ''}"
    fitting = bins
    if gpu:
        fitting = [bin_ for bin_ in bins if bin_.gpu_cores == gpu] or _with_cpu(bins, gpu)
    if cpu:
        fitting = _with_cpu(fitting, cpu)
    if ram is None and fitting:
        ram = min(size for bin_ in fitting for size in bin_.ram_gib)
    sold = [bin_ for bin_ in fitting if ram in bin_.ram_gib]
    if not sold or ram is None:
        sizes = sorted({size for bin_ in (fitting or bins) for size in bin_.ram_gib})
        if ram is not None and not any(ram in bin_.ram_gib for bin_ in bins):
            listed = " or ".join(", ".join(map(str, sizes)).rsplit(", ", 1))
            raise MacError(f"anymps: {name} has {listed} GB, not {ram}")
        raise MacError(f'anymps: there is no Mac "{wanted}"; nearest: {_nearest(name, bins, fitting, ram)}')
    return max(sold, key=lambda bin_: bin_.gpu_cores), ram


def _with_cpu(bins: list[Chip], cores: int) -> list[Chip]:
    return [bin_ for bin_ in bins if bin_.cpu_performance_cores + bin_.cpu_efficiency_cores == cores]


def _nearest(name: str, bins: list[Chip], fitting: list[Chip], ram: int | None) -> str:
    """Real Macs close to the wish: the bins with its memory, then those with its cores."""
    if ram is not None:
        bins = [bin_ for bin_ in bins if ram in bin_.ram_gib] + [bin_ for bin_ in fitting if ram not in bin_.ram_gib]
    return ", ".join(
        f"{name} {bin_.gpu_cores}-core {ram if ram in bin_.ram_gib else min(bin_.ram_gib)}GB" for bin_ in bins
    )


def _nearest_chips(name: str) -> str:
    """Chips of the same generation, or all of the plain ones."""
    names = list(dict.fromkeys(chip.name.removeprefix("Apple ") for chip in chip_table().chips))
    family = [known for known in names if known.split()[0] == name.split()[0]]
    return ", ".join(family or [known for known in names if " " not in known])


DEFAULT_MAC: Final = parse_mac("M3 Pro 18GB")
"""The Mac taken when none is named: a common laptop whose memory is small enough for limits to matter."""

"""Which NVIDIA GPU computes for this process, or why none can: for the substrate `cuda`.

Every question to the machine goes through `look_for_cards`, which tests replace.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from anymps._errors import EnableError
from anymps._numbers import digits, whole
from anymps.device._driver import Card, Driver, ask_driver

CARDS_VARIABLE: Final = "ANYMPS_CARDS"
"""How many cards processes are spread over: the first of this machine, or more than it has, which are shared then."""

RANK_VARIABLE: Final = "ANYMPS_CARD_RANK"
"""The number of a process that `multiprocessing` started; what it starts in turn has the same card."""

PLAYED_VARIABLE: Final = "ANYMPS_CARD"
"""`cpu`: the CPU plays the card; `away`: and computes every call on copies, as those that no card can. For tests."""

_PLAYED: Final = {"cpu": -1, "away": -2}  # as `choose_substrate` of the native core has it
_LEAST: Final = 1 << 30
"""Bytes without which nothing can be begun: CUDA and its libraries take half of it for themselves."""

_LAUNCHED: Final = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "RANK")
_NEEDS: Final = "the cuda substrate needs"


@dataclass(frozen=True)
class Cards:
    """What there is: the installed torch with the CUDA that it is built for and its instruction sets, and the driver.

    `driver` is None where there is none; `visible` is CUDA_VISIBLE_DEVICES, if it is set.
    """

    torch: str
    torch_cuda: str | None
    architectures: tuple[str, ...]
    driver: Driver | None
    visible: str | None = None


@dataclass(frozen=True)
class Lack:
    """Why no card, or not this one, can serve, and what to do: `cause` has no colon, `remedy` is an order."""

    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.cause}: {self.remedy}"


def look_for_cards() -> Cards:
    """Ask the installed torch and the driver. Imports torch."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cuda = torch.version.cuda
    if cuda is None:
        return Cards(str(torch.__version__), None, (), None, visible)
    # torch.cuda.get_arch_list says nothing where torch.cuda is hidden; this is what it reads.
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)() or ""
    return Cards(str(torch.__version__), cuda, tuple(flags.split()), ask_driver(), visible)


def why_no_card(found: Cards) -> Lack | None:
    """Why no card can serve; None if one can."""
    if found.torch_cuda is None:
        return Lack(
            f"{_NEEDS} a torch that is built for CUDA, and {found.torch} is not",
            "install that build (pytorch.org/get-started), or use the host substrate",
        )
    driver = found.driver
    if driver is None:
        return Lack(
            f"{_NEEDS} NVIDIA's driver, and libcuda.so.1 cannot be loaded",
            "install the driver, or start the container with its GPUs (docker run --gpus all)",
        )
    built_for = _version(found.torch_cuda)
    if driver.cuda[0] < built_for[0]:
        return Lack(
            f"NVIDIA's driver is too old, as it serves CUDA {_dotted(driver.cuda)}, and torch {found.torch} is built "
            f"for {found.torch_cuda}",
            f"update the driver, or install a torch for CUDA {driver.cuda[0]}",
        )
    if driver.error:
        return Lack(f"NVIDIA's driver reports no GPU ({driver.error})", "run nvidia-smi, which asks the same driver")
    if driver.cards:
        return None
    if found.visible is not None:
        return Lack(
            f"{_NEEDS} an NVIDIA GPU, and CUDA_VISIBLE_DEVICES={found.visible!r} shows none",
            "unset it, or name a GPU by its number",
        )
    return Lack(f"{_NEEDS} an NVIDIA GPU, and this machine has none", "use the host substrate")


def why_not_card(found: Cards, card: Card) -> Lack | None:
    """Why this card cannot serve now; None if it can."""
    if not _has_kernels(found.architectures, card.capability):
        return Lack(
            f"torch {found.torch} has no kernels for {_named(card)}, which has compute capability "
            f"{_dotted(card.capability)}",
            f"install a torch that has them (this one has those for {', '.join(found.architectures)}), or choose "
            "another GPU with CUDA_VISIBLE_DEVICES",
        )
    if card.free is not None and card.free < _LEAST:
        return Lack(
            f"{_named(card)} is full, as other processes have {_gib(card.total - card.free)} of {_gib(card.total)} GiB",
            "end them (nvidia-smi names them), or choose another GPU with CUDA_VISIBLE_DEVICES",
        )
    return None


def card_of(rank: int, there: int) -> int:
    """The card of a rank on a machine with so many: `rank % cards`. Raises EnableError for a wrong `ANYMPS_CARDS`."""
    text = os.environ.get(CARDS_VARIABLE, "")
    cards = whole(text) if text else there
    if not cards:
        raise EnableError(f"anymps: {CARDS_VARIABLE}={text!r} must be a number of GPUs, 1 or more")
    return rank % cards % there


def rank_here() -> int:
    """This process's number among those that share the cards; 0 for one alone.

    It is that of torchrun, else the worker's of pytest-xdist, else that among its parent's processes
    (`multiprocessing`), else the one of another launcher. A worker of a rank has its rank's.
    """
    local = whole(os.environ.get("LOCAL_RANK", ""))
    if local is not None:
        return local
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if worker:
        return digits(worker[1])
    for name in (RANK_VARIABLE, *_LAUNCHED):
        rank = whole(os.environ.get(name, ""))
        if rank is not None:
            return rank
    return 0


def take_card() -> Card:
    """The card of this process. Raises EnableError, in one line that says what to do, where it cannot be had."""
    played = _PLAYED.get(os.environ.get(PLAYED_VARIABLE, ""))
    if played is not None:
        return Card(played, "played by the CPU", 1 << 50, None, (0, 0))
    found = look_for_cards()
    why = why_no_card(found)
    if why is None:
        assert found.driver is not None
        card = found.driver.cards[card_of(rank_here(), len(found.driver.cards))]
        why = why_not_card(found, card)
        if why is None:
            return card
    raise EnableError(f"anymps: {why}")


def too_small(card: Card, mac_bytes: int) -> str:
    """A warning, in one line, if the GPU may be full before the Mac is; else empty."""
    room = card.total if card.free is None else card.free
    if room >= mac_bytes:
        return ""
    what = "has" if room == card.total else "has free"
    return (
        f"{_named(card)} {what} {_gib(room)} GiB, the Mac's GPU may use {_gib(mac_bytes)} GiB: if the GPU is full "
        "before the Mac is, the error says so"
    )


def _named(card: Card) -> str:
    return f"GPU {card.number} ({card.name})"


def _has_kernels(architectures: tuple[str, ...], capability: tuple[int, int]) -> bool:
    """Whether a build has code for a card: of its own generation and no newer, or such as the driver translates.

    Of a build that tells nothing, yes. Source: CUDA C++ Programming Guide, binary and PTX compatibility.
    """
    for text in architectures:
        kind, _, digits = text.partition("_")
        digits = digits.rstrip("af")
        if len(digits) < 2 or not digits.isdecimal():
            return True  # of a form that is not known here: let CUDA judge
        version = int(digits[:-1]), int(digits[-1])
        if kind == "compute" and version <= capability:
            return True
        if kind == "sm" and version[0] == capability[0] and version <= capability:
            return True
    return not architectures


def _version(text: str) -> tuple[int, int]:
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    return int(major), int(minor or 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"

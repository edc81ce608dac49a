"""The first thing that a process does which a program on the virtual Mac has started: have the device as well."""

from __future__ import annotations

import sys

from anymps._errors import AnympsError
from anymps.device._enable import enable
from anymps.mac import Mac


def switch_on(mac: Mac, method: str) -> None:
    """Have the parent's device. Where that fails the process goes on without, and says so."""
    try:
        enable(mac, quiet=True, start_method=method)
    except AnympsError as error:
        print(error, file=sys.stderr, flush=True)

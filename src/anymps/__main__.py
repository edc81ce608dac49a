"""`python -m anymps`: the command line."""

from __future__ import annotations

import os
import sys

if not getattr(sys.flags, "safe_path", False):
    # `-m` puts the current folder first; modules there are the script's. The place stays taken (`_own_process.py`).
    sys.path[0] = os.devnull
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from anymps.commands import main

if __name__ == "__main__":
    sys.exit(main())

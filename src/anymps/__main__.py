"""`python -m anymps`, and the file by which anymps starts itself again: the command line."""

from __future__ import annotations

import os
import sys

if not getattr(sys.flags, "safe_path", False):
    # `-m` puts the current folder first, whose modules are the script's; a file's own folder is first otherwise. The
    # place stays taken: the script's own folder is put there, and PYTHONPATH's behind it must not go.
    sys.path[0] = os.devnull
# Last of all places: only for an anymps that is not installed, as in a checkout.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from anymps.commands import main

if __name__ == "__main__":
    sys.exit(main())

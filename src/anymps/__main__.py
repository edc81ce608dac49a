"""`python -m anymps` is `anymps`."""

from __future__ import annotations

from anymps.commands import main

if __name__ == "__main__":
    main()

"""`python -m ipulaunch.launcher` is `ipulaunch`, for where the script is not on the PATH."""

from __future__ import annotations

from ipulaunch.launcher.cli.entry import main

main()

"""Puts the stand-in in the SDK's place in every Python that has this directory on its PYTHONPATH."""

import os

if "IPU_STANDIN_SDK" in os.environ:
    from ipu_standin import modules

    modules.install(os.environ["IPU_STANDIN_SDK"])

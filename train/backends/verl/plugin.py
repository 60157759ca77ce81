"""Loaded by verl in every process (`VERL_USE_EXTERNAL_MODULES`): the smoke device, when asked for.

Importing this module imports nothing of verl unless `VERL_PLATFORM=cpu`: verl loads it while it is
itself being imported.
"""

from __future__ import annotations

import os

if os.environ.get("VERL_PLATFORM") == "cpu":
    from train.backends.verl.smoke import device

    device.install()

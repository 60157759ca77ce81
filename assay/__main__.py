"""`python -m assay`: the `assay` command.

Python then looks for modules in the current folder first, where a user may have a `train.py`, a
`rewards/` or a `configs/` of their own; the `assay` script does not look there.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    if Path(sys.path[0]).resolve() != Path(__file__).resolve().parents[1]:
        del sys.path[0]
    from assay import main

    sys.exit(main())

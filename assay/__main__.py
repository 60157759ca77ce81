"""`python -m assay`: the `assay` command."""

import sys

from assay import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m gan`, for `accelerate launch -m gan train ...` and `torchrun -m gan train ...`."""

import sys

from gan.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m blockproof.fuzz.cli`: the command line without its script."""

import sys

from .main import main

sys.exit(main())

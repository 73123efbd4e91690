"""``python -m pliant`` is ``pliant``."""

import sys

from pliant.cli.main import main

sys.exit(main())

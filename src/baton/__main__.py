"""`python -m baton`."""

from baton.cli import main

raise SystemExit(main())

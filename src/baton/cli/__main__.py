"""`python -m baton.cli`."""

from baton.cli import main

raise SystemExit(main())

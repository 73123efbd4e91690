"""``pliant data``: looks at datasets, rewrites them, checks them."""

from __future__ import annotations

import typer

app = typer.Typer(help="Look at, rewrite and check datasets.", no_args_is_help=True)

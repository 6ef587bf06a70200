"""`python -m sharp_cli` is `sharp`."""

from sharp_cli.main import app

app(prog_name="sharp")

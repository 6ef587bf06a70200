"""Small programs to start from. Each runs by itself, `python examples/NAME.py --help`, against `make serve`."""

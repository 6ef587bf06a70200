"""The `sharp` command: everything that is done from a terminal."""

"""`make test-clients` runs these; they need packages that the default run has not."""

collect_ignore_glob = ["*.py"]

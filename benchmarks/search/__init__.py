"""A small systematic search: named settings × data sets × seeds, judged on validation data, never on the test set.

    python -m benchmarks.search SETTINGS.toml --data-root DIR

Every finished run is appended as one line to a file of JSON lines (by default below `benchmarks/results/`, under the
name of the settings file); runs that are there already are not run again, so a search may be stopped and continued. The
settings file, TOML or JSON:

    datasets = ["mnist", "fashion-mnist"]
    seeds = [0, 1, 2]
    fraction = 1.0              # this and the next four may be left out, or stand in a setting of their own
    memory = "full"
    preset = "default"
    m = 1
    blurry = "3,0.3"

    [[settings]]
    name = "covered"
    set = { "training.selection" = "covered", "training.batch_size" = 128 }
"""

"""Stubs of the package `sharp.v1`: the services Learning, Prediction and Admin."""

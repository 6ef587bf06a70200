"""How a measurement is run from the command line and what it leaves: a progress bar, tables, JSON, charts, documents.

No figure is made here: whoever measures computes it, and this package shows it.
"""

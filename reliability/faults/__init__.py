"""Faults in the middle of work: a real server learns and answers while disk, clock, memory, trainer or name fail.

`python -m reliability.faults` puts one server after the other through each fault, for some seconds, and says what
happened: what predictions and producers saw, how long it took until all was well, and whether anything acknowledged was
lost. A fault reaches the server's processes alone (see `shim.c`), never the machine.
"""

"""Sends a real server what no client of good faith would, and looks at what comes back and what it costs.

`python -m reliability.fuzz --messages 100000` asks every method of every service, by reflection, with messages that
hypothesis makes from the protobuf descriptors, with hostile images and snapshot files, and with garbage on both ports.
"""

"""Fuzzing by coverage, with atheris: what reads bytes from outside is called in its own process, as fast as it goes.

`python -m reliability.fuzz.coverage --seconds 60` mutates valid inputs of the decoders, of the snapshot reader and of
the journal's reader towards code that was not reached yet. A refusal with the reader's own error is what is wanted; any
other exception, and a death of the process, is a finding, and its input is kept. It must never write outside its
folder.
"""

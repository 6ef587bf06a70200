"""Everything that shows that the server can be trusted, by one command: `python -m reliability.proof`.

Each part is a command of its own, run as a process, with its result in a file; one that is done for this commit is not
run again, so a proof of hours may be stopped and taken up. From the results one page is written, each figure beside its
goal. It must never judge a figure away: a miss is printed in bold, and a part that was not run is called so.
"""

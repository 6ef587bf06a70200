"""Everything that shows that the server can be trusted, by one command: `python -m reliability.proof`.

Each part is a command of its own, run as a process, with its result in a file. Long parts are several runs, each with a
seed of its own, that add up. A run counts for as long as the code that it exercises stays the same, so a proof of hours
may be stopped, taken up, and outlive commits that change something else. From the results one page is written, each
figure beside its goal. It must never judge a figure away: a miss is printed in bold, a part that was not run is called
so, and so is one whose code has changed since.
"""

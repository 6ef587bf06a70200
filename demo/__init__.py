"""`make demo`: the service from start to end on real data, with every promise checked on the way.

It talks to a real server process through the client only, in a temporary folder, and leaves nothing behind but its
report. It must end with exit code 1 where a promise did not hold.
"""

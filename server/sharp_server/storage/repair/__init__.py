"""Damage of SQLite's files that SQLite itself passes over in silence: lost transactions of the write-ahead log.

SQLite drops every frame from the first damaged one on, and its own checks then call the rest sound. Two tests of
`tests/faults/test_damage.py` hold what is done about it: `test_a_damaged_log_loses_no_version_and_what_it_lost_is_told`
and `test_a_log_whose_damaged_pages_are_in_the_main_file_already_costs_nothing`. It must never change a sound file.
"""

"""What is kept on disk: the journal behind one interface, snapshot files, a manifest per learner, recovery.

Everybody else works with `interface.Storage`, `board.Board` and `DataFolder`; SQL is in `sqlite` and `postgres`, and
nowhere else. It must never say that something is kept before it is flushed, and never hold a raw example longer than
it is needed.
"""

from sharp_server.storage.data_folder import DataFolder
from sharp_server.storage.interface import ExampleSource, Storage

__all__ = ["DataFolder", "ExampleSource", "Storage"]

"""Protocol of SHARP Serve: protos with their generated stubs."""

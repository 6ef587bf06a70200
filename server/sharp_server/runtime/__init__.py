"""What the process itself needs: its state, logs, metrics, threads, memory, version.

Each module stands by itself. It knows nothing of learners, and must never import anything above it.
"""

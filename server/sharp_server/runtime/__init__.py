"""What the process itself needs: logs, metrics, memory, thread priority, version.

It knows nothing of learners, and must never import anything above it.
"""

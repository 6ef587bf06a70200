"""A cluster on machines of its own (network namespaces), of which one after the other dies under load."""

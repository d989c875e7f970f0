"""One thin adapter for each client library; what is decided is decided in ``tidegate_agent.core``."""

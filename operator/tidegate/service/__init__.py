"""What surrounds the operator's work: settings, logs, metrics, health and HTTP servers."""

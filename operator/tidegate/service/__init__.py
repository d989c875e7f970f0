"""What surrounds the work of the operator: its settings, logs, metrics and HTTP servers."""

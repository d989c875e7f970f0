"""The audit log: who had which committed offsets changed, from where to where, by which plan (ADR 43)."""

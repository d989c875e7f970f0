"""The parts of one operator, put together."""

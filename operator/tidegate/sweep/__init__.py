"""Holds whose run or pause is gone: found, reported and released."""

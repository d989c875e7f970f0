"""Hostile input for every decoder: what it is, how it is made from valid documents, and a run of it for long.

:mod:`support.fuzzing.targets` is the register of decoders, :mod:`support.fuzzing.mutation` spoils documents, and
:mod:`support.fuzzing.fuzzer` does so for as long as it is told. What has once shown something new is kept in
``tests/corpus/fuzz``.
"""

"""A live group's offsets are reset, and put back, in front of your eyes: ``python -m demo``, or ``make demo``.

Everything in it is real: broker, API server, operator, Spark, six ordinary consumers, ten thousand requests of a web
site. ``story`` is what happens, in order; the rest sets the stage, looks, shows and judges.
"""

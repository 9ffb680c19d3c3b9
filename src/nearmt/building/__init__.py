"""Building a store from a translation memory, and every later change: adding, correcting, compacting, repairing.

May import corpus, datastore, models, retrieval and methods. `ray/` is the only place that imports ray.
"""

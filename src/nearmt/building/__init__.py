"""From a translation memory to a store, and every later change to it: extract states, ingest, edit, compact, repair.

May import corpus, datastore, models, retrieval and methods. `ray/` is the only place that imports ray.
"""

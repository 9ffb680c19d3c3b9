"""How neighbours are weighed against the model: vanilla, uniform, Meta-k and its published variants.

Pure tensor code over `Retrieved`; knows stores only through the registry, which loads what a store has learned.
"""

"""How neighbours are weighed against the model: vanilla, uniform, Meta-k and its published variants.

Tensor code over `Retrieved`. Only the registry, which loads a store's trained networks, depends on stores.
"""

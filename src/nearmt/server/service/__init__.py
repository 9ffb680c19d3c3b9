"""What the routes call: the translation service, batching, the fair queue, the store registry and import jobs.

Of `http`, this package imports only `http.errors`.
"""

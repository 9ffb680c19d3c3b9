"""What the routes call: the translation service, batching, the fair queue, the store registry, import jobs."""

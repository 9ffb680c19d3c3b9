"""From decoder states to neighbours: indexes, exact distances, filters, several stores, a store that changes.

`index/` is the only place that imports faiss and pymilvus.
"""

"""From decoder states to neighbours: indexes, exact distances, filters, several stores, stores that change.

Only `index/` imports faiss and pymilvus.
"""

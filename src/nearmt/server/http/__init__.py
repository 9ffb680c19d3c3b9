"""What any HTTP service needs: authentication, errors, limits on requests, metrics, request and response schemas.

This package does not import the translation code. `service` may import `http.errors` and nothing else from here;
`routes` import both.
"""

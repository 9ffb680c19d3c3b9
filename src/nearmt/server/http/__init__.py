"""HTTP concerns that know nothing of translation: authentication, errors, middleware, metrics, schemas."""

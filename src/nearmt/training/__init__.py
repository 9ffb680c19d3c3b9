"""Learning how far to trust a store: the dev set's neighbours are cached once, then every method is fitted on them."""

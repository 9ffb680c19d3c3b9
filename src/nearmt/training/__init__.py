"""Training networks and tuning baselines for a store, on a dev set whose neighbours are retrieved once and cached."""

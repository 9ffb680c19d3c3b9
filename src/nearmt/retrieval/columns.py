"""The stored columns of a snapshot, as methods and evidence take them from a retriever."""

import torch

from nearmt.datastore import Snapshot


class StoredColumns:
    """A retriever of one snapshot; subclasses search it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def project(self, states: torch.Tensor) -> torch.Tensor:
        return self.snapshot.project(states)

    def keys_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        return self.snapshot.keys_of(entry_ids)

    def probabilities_of(self, entry_ids: torch.Tensor) -> torch.Tensor:
        return self.snapshot.probabilities_of(entry_ids)

    def stored_at(self, entry_id: int) -> tuple[Snapshot, int]:
        """The snapshot of an entry, and its entry id there."""
        return self.snapshot, entry_id

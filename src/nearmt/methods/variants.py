"""The variants by name, and from their files."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from nearmt.errors import StoreDamagedError
from nearmt.methods.damping import Damping
from nearmt.methods.kernel import Kernel
from nearmt.methods.robust import Robust
from nearmt.methods.variant import HEADER, VariantNetwork

_KINDS: dict[str, type[Kernel] | type[Robust]] = {Kernel.name: Kernel, Robust.name: Robust}
VARIANTS = tuple(_KINDS)


def load_variant(path: Path) -> VariantNetwork:
    """A network as `to_bytes` wrote it."""
    try:
        with safe_open(path, "pt") as opened:
            settings = json.loads(opened.metadata()[HEADER])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        guard = settings.pop("guard", None)
        network = _KINDS[settings.pop("name")](settings.pop("max_k"), **settings)
        network.load_state_dict(tensors)
        network.damping = Damping(**guard) if guard is not None else None
    except (SafetensorError, KeyError, TypeError, RuntimeError, OSError, ValueError) as error:
        raise StoreDamagedError(f"{path} is missing or damaged: run nearmt verify, or train again") from error
    return network.eval()

"""Saving and loading trained networks: safetensors files with the settings as JSON in the header."""

import json
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open

from nearmt.errors import StoreDamagedError
from nearmt.methods.damping import Damping
from nearmt.methods.kernel import Kernel
from nearmt.methods.metak import MetaK
from nearmt.methods.network import Network
from nearmt.methods.robust import Robust

NETWORKS: dict[str, type[MetaK | Kernel | Robust]] = {kind.name: kind for kind in (MetaK, Kernel, Robust)}
# The header's key says which kind it is; a variant's settings include its name.
_METAK, _VARIANT = "nearmt_metak", "nearmt_relative"


def network_bytes(network: Network) -> bytes:
    """The content of a network's file."""
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    if isinstance(network, MetaK):
        header = {_METAK: json.dumps(network.settings)}
    else:
        header = {_VARIANT: json.dumps({"name": network.name, **network.settings})}
    content: bytes = safetensors.torch.save(tensors, header)
    return content


def load_network(path: Path) -> Network:
    """Load a network of any kind."""
    try:
        with safe_open(path, "pt") as opened:
            header = opened.metadata()
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        settings = json.loads(header[_METAK if _METAK in header else _VARIANT])
        kind, damping = NETWORKS[settings.pop("name", MetaK.name)], settings.pop("guard", None)
        network = kind(**settings)
        network.load_state_dict(tensors)
        network.damping = Damping(**damping) if damping is not None else None
    except (SafetensorError, KeyError, TypeError, RuntimeError, OSError, ValueError) as error:
        raise StoreDamagedError(f"{path} is missing or damaged: run nearmt verify, or train again") from error
    return network.eval()

"""A French→English model and two translation memories to try nearmt with."""

from pathlib import Path

from nearmt_demo.model_cache import model_folder

_DATA = Path(__file__).parent / "data"
MEMORY = _DATA / "law" / "memory.tsv.gz"
DEV = _DATA / "law" / "dev.tsv.gz"
TEST = _DATA / "law" / "test.tsv.gz"
ABOUT = (
    "Model: Helsinki-NLP/opus-mt-fr-en (Apache-2.0), French to English, with rounded weights. Memory and test set: "
    "Canadian acts on banks, insurers and corporations, Department of Justice Canada. Contains information licensed "
    "under the Open Government Licence – Canada."
)

__all__ = ["ABOUT", "DEV", "MEMORY", "TEST", "model_folder"]

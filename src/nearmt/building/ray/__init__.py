"""Building on Ray: workers on one machine or many force-decode the commits of a build.

The only package that imports ray, and only when a build needs it. Workers write entries directly to the store's files.
This process reads, tokenises and commits in order, so the store is the same as that of a local build.
"""

from nearmt.building.ray.ingest import RayIngestor, ray_ingestor
from nearmt.building.ray.settings import RaySettings, check_installed

__all__ = ["RayIngestor", "RaySettings", "check_installed", "ray_ingestor"]

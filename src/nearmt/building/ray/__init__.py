"""Building on Ray: pieces of a memory are force-decoded by a pool of workers, on this machine or on many.

The only room that knows ray, which is imported when a build asks for it. The workers put entries straight into the
store's files; this process reads, tokenises, and commits in order, so the store is the one that a local build makes.
"""

from nearmt.building.ray.ingest import RayIngestor, ray_ingestor
from nearmt.building.ray.settings import RaySettings, check_installed

__all__ = ["RayIngestor", "RaySettings", "check_installed", "ray_ingestor"]

"""Published facts about IPUs, their machines and their hosts, each with the document that states it."""

from __future__ import annotations

# Data sheets of IPU-M2000 and Bow-2000: In-Processor-Memory and tiles of one IPU, Mk2 and Bow alike.
IPU_MEMORY_BYTES = 900_000_000
IPU_TILES = 1472

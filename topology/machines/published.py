"""Published facts about IPUs, their machines and their hosts, each with the document that states it."""

from __future__ import annotations

# Data sheets of IPU-M2000 and Bow-2000: In-Processor-Memory and tiles of one IPU, Mk2 and Bow alike.
IPU_MEMORY_BYTES = 900_000_000
IPU_TILES = 1472

# The same data sheets, and the press: an IPU-Machine has 4 IPUs. A Bow-2000 takes 1.25 kW on average, an IPU-M2000 at
# most 1.5 kW.
IPUS_PER_MACHINE = 4
BOW_MACHINE_KW = 1.25
MACHINE_KW = 1.5

# Build guides of the PODs: a host has one 100 GbE port with RDMA to the IPU-Machines.
HOST_LINK_GBIT = 100.0

# Data sheet of the EPYC 7742, of which the reference host has two: memory bandwidth of a socket.
SOCKET_BYTES_PER_S = 204.8e9

# Graphcore's page of performance results (TensorFlow 1, before SDK 2.5): images/s of ResNet-50 in training, by the IPUs
# of a Bow-POD.
BOW_RESNET50_IMAGES_PER_S = {16: 42_029, 64: 145_287, 256: 425_514}
# MLPerf Training: ResNet-50 takes 28.3 minutes on an IPU-POD16; its published configuration trains 40 epochs.
POD16_RESNET50_IMAGES_PER_S = 40 * 1_281_167 / (28.3 * 60)

# ImageNet as published: 1,281,167 JPEGs of about 500 x 375 pixels in about 140 GB.
IMAGENET_JPEG_BYTES = 110_000

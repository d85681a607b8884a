"""MirrorMaker 2 (KIP-382, KIP-545, KIP-618) on released Kafka."""

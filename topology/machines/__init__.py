"""PODs, hosts, NUMA nodes, and the lists that name them."""

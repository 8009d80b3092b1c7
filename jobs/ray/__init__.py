"""One job on a Ray cluster: actors that each have a server run its shards until none is left."""

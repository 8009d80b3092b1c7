"""What a call costs the client, beside its peers; ratios within one run are held to bounds."""

"""How full the volumes of claims are, and whether they are healthy."""

"""What is done to claim-backed volumes: one pure plan, and what carries it out."""

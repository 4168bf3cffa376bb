"""Operations on claim-backed volumes: a pure plan, and the code that carries it out."""

"""Where objects live, and who watches them."""

"""The fact tables of docs/reference: reading them and what cites them."""

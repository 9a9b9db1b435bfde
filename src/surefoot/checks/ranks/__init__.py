"""Ranks: what several processes of one training must agree on."""

"""Ranks side by side."""

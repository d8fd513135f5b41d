"""Memory and traffic in closed form. No torch."""

"""From results to pictures and pages."""

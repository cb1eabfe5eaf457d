"""Problems with known answers, for tests, benchmarks and first steps."""

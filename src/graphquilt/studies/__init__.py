"""The demo and the studies of the paper: users of the library that happen to live here."""

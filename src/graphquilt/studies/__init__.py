"""The demos and the studies of the paper: users of Job and of evaluate that happen to live here."""

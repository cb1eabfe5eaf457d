"""What a batch leaves to look at: the page, its figures, and the files beside them."""

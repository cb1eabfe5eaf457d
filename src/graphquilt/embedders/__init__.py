"""Methods that place the nodes of one graph: the built-in ones, and the contract for anybody else's."""

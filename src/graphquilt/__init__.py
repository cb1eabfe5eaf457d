"""graphquilt: graph embeddings stitched from independently embedded patches.

``__init__.pyi`` lists the public names. Each is loaded when it is first used: ``import graphquilt`` and
``graphquilt --help`` cost next to nothing. No module has the name of a public function, because importing that module
would put it in the function's place.
"""

import lazy_loader

__version__ = "0.7.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

from graphquilt.embedders import DGI as DGI
from graphquilt.embedders import GAE as GAE
from graphquilt.embedders import SVD as SVD
from graphquilt.embedders import VGAE as VGAE
from graphquilt.embedders import Embedder as Embedder
from graphquilt.embedders import Encoder as Encoder
from graphquilt.embedders import Fit as Fit
from graphquilt.embedders import bipartite_svd as bipartite_svd
from graphquilt.errors import ConvergenceError as ConvergenceError
from graphquilt.errors import CoverError as CoverError
from graphquilt.errors import DisconnectedError as DisconnectedError
from graphquilt.errors import FormatError as FormatError
from graphquilt.errors import InputError as InputError
from graphquilt.errors import JobError as JobError
from graphquilt.errors import MissingExtraError as MissingExtraError
from graphquilt.errors import OverlapError as OverlapError
from graphquilt.errors import QuiltError as QuiltError
from graphquilt.graph import Graph as Graph
from graphquilt.patches import Patch as Patch
from graphquilt.patches import PatchGraph as PatchGraph
from graphquilt.progress import Progress as Progress

__version__: str

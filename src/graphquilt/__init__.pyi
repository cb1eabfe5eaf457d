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
from graphquilt.ingest import read_edges as read_edges
from graphquilt.partition import Fennel as Fennel
from graphquilt.partition import Metis as Metis
from graphquilt.partition import edge_cut as edge_cut
from graphquilt.partition import merge_small as merge_small
from graphquilt.patches import Limits as Limits
from graphquilt.patches import Patch as Patch
from graphquilt.patches import PatchGraph as PatchGraph
from graphquilt.patches import patch_graph as patch_graph
from graphquilt.progress import Progress as Progress
from graphquilt.sparsify import Conductance as Conductance
from graphquilt.sparsify import Resistance as Resistance

__version__: str

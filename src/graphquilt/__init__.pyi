from graphquilt.errors import ConvergenceError as ConvergenceError
from graphquilt.errors import CoverError as CoverError
from graphquilt.errors import DisconnectedError as DisconnectedError
from graphquilt.errors import FormatError as FormatError
from graphquilt.errors import InputError as InputError
from graphquilt.errors import JobError as JobError
from graphquilt.errors import MissingExtraError as MissingExtraError
from graphquilt.errors import OverlapError as OverlapError
from graphquilt.errors import QuiltError as QuiltError
from graphquilt.flows import FlowCounts as FlowCounts
from graphquilt.flows import Flows as Flows
from graphquilt.flows import read_flows as read_flows
from graphquilt.graph import Graph as Graph
from graphquilt.patches import Patch as Patch
from graphquilt.patches import PatchGraph as PatchGraph
from graphquilt.progress import Progress as Progress
from graphquilt.windows import Names as Names
from graphquilt.windows import Snapshots as Snapshots
from graphquilt.windows import Window as Window
from graphquilt.windows import lag_edges as lag_edges
from graphquilt.windows import snapshots as snapshots

__version__: str

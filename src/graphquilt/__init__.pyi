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
from graphquilt.store import DirectoryStore as DirectoryStore

__version__: str

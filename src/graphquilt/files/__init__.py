"""Write files atomically, explain errors of the disk, and read and write arrays."""

from graphquilt.files.archives import Archive, open_archive, read_bytes
from graphquilt.files.array_files import (
    array_file,
    check_values,
    load_arrays,
    map_array,
    map_arrays,
    save_arrays,
    temporary_array,
    write_arrays,
)
from graphquilt.files.writing import beside, check_disk, check_inside, explained, sync_folder, write_text

__all__ = [
    "Archive",
    "array_file",
    "beside",
    "check_disk",
    "check_inside",
    "check_values",
    "explained",
    "load_arrays",
    "map_array",
    "map_arrays",
    "open_archive",
    "read_bytes",
    "save_arrays",
    "sync_folder",
    "temporary_array",
    "write_arrays",
    "write_text",
]

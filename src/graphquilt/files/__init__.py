"""Write files atomically, explain errors of the disk, read and write arrays, checksums and locks."""

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
from graphquilt.files.checksums import (
    array_checksum,
    is_array_entry,
    is_checksum,
    is_size,
    read_sealed,
    sealed_content,
    sealed_text,
)
from graphquilt.files.locks import folder_lock
from graphquilt.files.writing import (
    check_disk,
    check_inside,
    sync_folder,
    temporary_sibling,
    translate_disk_errors,
    write_text,
)

__all__ = [
    "Archive",
    "array_checksum",
    "array_file",
    "check_disk",
    "check_inside",
    "check_values",
    "folder_lock",
    "is_array_entry",
    "is_checksum",
    "is_size",
    "load_arrays",
    "map_array",
    "map_arrays",
    "open_archive",
    "read_bytes",
    "read_sealed",
    "save_arrays",
    "sealed_content",
    "sealed_text",
    "sync_folder",
    "temporary_array",
    "temporary_sibling",
    "translate_disk_errors",
    "write_arrays",
    "write_text",
]

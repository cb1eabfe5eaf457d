"""Write files atomically, explain errors of the disk, read and write arrays, checksums and locks."""

from graphquilt.files.array_files import array_writer, load_arrays, map_array, map_arrays, save_arrays, write_arrays
from graphquilt.files.checksums import array_checksum, is_checksum, is_size, read_sealed, sealed_content, sealed_text
from graphquilt.files.writing import (
    atomic_file,
    check_disk,
    folder_lock,
    sync_folder,
    temporary_sibling,
    translate_disk_errors,
    write_text,
)

__all__ = [
    "array_checksum",
    "array_writer",
    "atomic_file",
    "check_disk",
    "folder_lock",
    "is_checksum",
    "is_size",
    "load_arrays",
    "map_array",
    "map_arrays",
    "read_sealed",
    "save_arrays",
    "sealed_content",
    "sealed_text",
    "sync_folder",
    "temporary_sibling",
    "translate_disk_errors",
    "write_arrays",
    "write_text",
]

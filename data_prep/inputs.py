"""What the rest of the builder reads: `--input` to files, files to work units, work units to documents."""

from data_prep.planning import plan_units
from data_prep.source_files import SourceFile, find_files
from data_prep.units import FilePart, WorkUnit, read_unit, unit_num_bytes

__all__ = ["FilePart", "SourceFile", "WorkUnit", "find_files", "plan_units", "read_unit", "unit_num_bytes"]

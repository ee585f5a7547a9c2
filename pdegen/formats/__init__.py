"""Import of files of other projects into stores, and export of stores to other file formats."""

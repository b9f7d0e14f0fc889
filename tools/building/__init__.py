"""The parts of build.py: reading the sources, the toolchain, bounded compiler processes, compiler messages."""

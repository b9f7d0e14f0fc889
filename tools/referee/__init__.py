"""The judge's referee and the workers that it starts: see ../README.md for what it holds against and what not."""

"""What GPU tools say about kernels: self-checks, kernel tables, hardware counters, machine code, memory errors."""

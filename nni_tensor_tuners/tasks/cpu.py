"""What the CPU templates share."""

# Loops whose body stays below this many statements are unrolled: enough for a register tile, too little to blow up compilation.
UNROLL_STEPS = 64

# A multiply-add takes four cycles and two can start in each, so fewer independent sums would leave the units waiting.
ACCUMULATORS = 8
